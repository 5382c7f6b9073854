"""Amounts as sentences say them."""


def quantity(value: float) -> str:
    """Write an amount with at most two decimals: `8`, `2.5`, `<0.01`."""
    if 0 < value < 0.005:
        return "<0.01"
    text = f"{value:,.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def gpus(amount: float) -> str:
    """Write a number of GPUs: `1 GPU`, `2.5 GPUs`."""
    return counted(amount, "GPU")


def counted(number: float, one: str, many: str = "") -> str:
    """Return `1 pod`, `3 pods`, `2.5 GPUs`."""
    text = quantity(number)
    return f"{text} {one if text == '1' else many or one + 's'}"
