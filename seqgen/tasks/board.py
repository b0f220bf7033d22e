"""What `--tensorboard` writes: the figures of a run, where TensorBoard looks for them."""

from __future__ import annotations

from pathlib import Path

from seqgen.errors import SeqgenError
from seqgen.training.events import Event, Progress, SampleLine, Validated


class Board:
    """A TensorBoard log in a model's folder.

    Args:
        folder: where it goes.
        step: go on after this step: what the log has of later ones is taken back.

    Raises:
        SeqgenError: the package is not installed.
    """

    def __init__(self, folder: Path, step: int) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def take(self, event: Event) -> None:
        """Log an event."""
        if isinstance(event, Progress):
            for name in ("train_loss", "lr", "grad_norm", "tokens_per_second"):
                self._writer.add_scalar(name, getattr(event, name), event.step)
        elif isinstance(event, Validated):
            self._writer.add_scalar("val_loss", event.val_loss, event.step)
        elif isinstance(event, SampleLine):
            self._writer.add_text("sample", event.text, event.step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def require_tensorboard() -> None:
    """Make sure that there is something to write with.

    Raises:
        SeqgenError: says how to install it.
    """
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise SeqgenError(
            "--tensorboard needs the package tensorboard: pip install 'seqgen[tensorboard]'"
        ) from None
