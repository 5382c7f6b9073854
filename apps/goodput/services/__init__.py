"""What is computed of failed work."""

from apps.goodput.services.losses import fold_losses, keep_losses
from apps.goodput.services.reliability import judge_nodes
