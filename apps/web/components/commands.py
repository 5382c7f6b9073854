"""Lines for a shell, with names quoted so that they stay names."""

import shlex


def kubectl(*words: str, namespace: str = "") -> str:
    """Return a line that calls kubectl with these words, in a namespace where one is given.

        kubectl("describe", "pod", row.name, namespace=row.namespace)

    Names come from clusters: whatever they hold, the shell reads each as one word.
    `components/_command.html` shows such a line with a button that copies it.
    """
    return shlex.join(["kubectl", *words, *(["--namespace", namespace] if namespace else [])])
