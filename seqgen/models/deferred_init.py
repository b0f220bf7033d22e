"""Deferred initialization: models built on the meta device, whose tensors are made later.

So no process ever holds the whole of a model that is to be divided among several.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import swap_tensors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from seqgen.models.array_steps import ArraySteps
from seqgen.models.network import copy_network


@dataclass(frozen=True)
class TensorView:
    """View of a meta tensor: storage, type, offset, shape and strides."""

    storage: torch.UntypedStorage
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> TensorView:
        """Describe the view of a meta tensor."""
        layout = tensor.storage_offset(), tensor.shape, tensor.stride()
        return cls(tensor.untyped_storage(), tensor.dtype, *layout)

    @property
    def key(self) -> int:
        """Identity of the storage."""
        return self.storage._cdata

    def within(self, storages: Mapping[int, torch.UntypedStorage]) -> Tensor:
        """Return the corresponding view of materialized storages."""
        empty = torch.empty(0, dtype=self.dtype, device="cpu")
        return empty.set_(storages[self.key], self.offset, self.shape, self.stride)


@dataclass(frozen=True)
class Operation:
    """Recorded operation on meta tensors.

    Attributes:
        call: what torch calls.
        args: its arguments, with places in the place of tensors without content.
        kwargs: and those by name.
        results: where its results are.
        needs: the storages that it reads or writes.
        random: the generator's state before it; None if it draws nothing.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: list[TensorView]
    needs: frozenset[int]
    random: Tensor | None


class _AsInMemory(TorchFunctionMode):
    """Torch mode in which building on the meta device behaves as in memory.

    It would skip `orthogonal_` for a tensor that says that it has no content, and lose the numbers
    that `torch.tensor` is given.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func == torch.Tensor.is_meta.__get__:  # made anew each time
            return False
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") is None:
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


class InitRecorder(TorchDispatchMode):
    """Torch mode that builds modules on the meta device and records their initialization.

    Numbers are drawn within too, into a buffer that is given up at once, so that the generator goes
    on as it would. `made` draws them again from the states that are recorded: bit for bit what a
    model that is built in memory would hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[Operation] = []
        self._writers: dict[int, list[int]] = defaultdict(list)  # of each storage, by number
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> InitRecorder:
        for mode in (torch.device("meta"), _AsInMemory()):
            self._entered.enter_context(mode)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._entered.close()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        random = torch.Tag.nondeterministic_seeded in func.tags
        before = torch.get_rng_state() if random else None
        drawn_into = args[0] if random and args and isinstance(args[0], Tensor) else None
        # To draw what has no content, torch would load half its compiler.
        skips = drawn_into is not None and drawn_into.device.type == "meta"
        result = drawn_into if skips and _is_in_place(func) else func(*args, **kwargs)
        args, kwargs = _placed((args, dict(kwargs)))
        results, given = _places(_placed(result)), _places((args, kwargs))
        if not results and not given:
            return result
        if random:
            func(*_in_memory(args), **_in_memory(kwargs))
        changed = {place.key for place in _written(func, args, kwargs)}
        read = {place.key for place in given}
        changed |= {place.key for place in results} - read  # others are views
        if changed:
            for storage in changed:
                self._writers[storage].append(len(self._operations))
            needs = frozenset(read | changed)
            operation = Operation(func, args, kwargs, results, needs, before)
            self._operations.append(operation)
        return result

    @torch.no_grad()
    def made(self, tensor: Tensor) -> Tensor:
        """Materialize a meta tensor on the CPU by replaying its recorded operations."""
        if not tensor.is_meta:
            return tensor
        place, storages = TensorView.of(tensor), {}
        with torch.random.fork_rng(devices=[]):
            for number in self._needed(place.key):
                _repeat(self._operations[number], storages)
        return place.within(storages)

    def _needed(self, storage: int) -> list[int]:
        """List the numbers of the operations that determine a storage's content, in order."""
        numbers: set[int] = set()
        storages, waiting = {storage}, [storage]
        while waiting:
            new = set(self._writers[waiting.pop()]) - numbers
            numbers |= new
            more = {need for number in new for need in self._operations[number].needs} - storages
            storages |= more
            waiting += more
        return sorted(numbers)


def _repeat(operation: Operation, storages: dict[int, torch.UntypedStorage]) -> None:
    """Replay a recorded operation in memory and store its results by storage."""
    if operation.random is not None:
        torch.set_rng_state(operation.random)

    def real(place: TensorView) -> Tensor:
        return place.within(storages)

    args, kwargs = _on_cpu(tree_map_only(TensorView, real, (operation.args, operation.kwargs)))
    made = operation.call(*args, **kwargs)
    results = [value for value in tree_flatten(made)[0] if isinstance(value, Tensor)]
    for place, result in zip(operation.results, results, strict=True):
        if place.key not in storages:
            if result.stride() != place.stride:
                laid_out = torch.empty_strided(place.shape, place.stride, dtype=place.dtype)
                result = laid_out.copy_(result)
            storages[place.key] = result.untyped_storage()


def _is_in_place(func: Any) -> bool:
    first = func._schema.arguments[0].alias_info
    return first is not None and first.is_write


def _placed(values: Any) -> Any:
    """Replace meta tensors in a nested structure by their `TensorView`."""
    return tree_map_only(
        Tensor, lambda x: TensorView.of(x) if x.device.type == "meta" else x, values
    )


def _places(values: Any) -> list[TensorView]:
    return [value for value in tree_flatten(values)[0] if isinstance(value, TensorView)]


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[TensorView]:
    """List the places that an operation modifies in place."""
    places = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            places += _places(value)
    return places


def _on_cpu(values: Any) -> Any:
    return tree_map_only(torch.device, lambda device: torch.device("cpu"), values)


def _in_memory(values: Any) -> Any:
    """Replace places in arguments by uninitialized CPU tensors."""

    def empty(place: TensorView) -> Tensor:
        return torch.empty_strided(place.shape, place.stride, dtype=place.dtype, device="cpu")

    return _on_cpu(tree_map_only(TensorView, empty, values))


@dataclass(frozen=True)
class DeferredModel:
    """Model without weights in memory, and the recording of its initialization.

    Attributes:
        model: on the meta device, but for what does not depend on its configuration.
        recorder: how its tensors are made.
    """

    model: nn.Module
    recorder: InitRecorder

    @classmethod
    def build(cls, make: Callable[[], nn.Module]) -> DeferredModel:
        """Call a constructor on the meta device and record it."""
        with InitRecorder() as recorder:
            model = make()
        return cls(model, recorder)

    def shell(self, device: torch.device) -> Any:
        """Copy the model to a device with buffers but without memory for parameters.

        `lend_memory` gives the parameters memory for a while.
        """
        model = copy_network(self.model)
        for parameter in model.parameters():
            swap_content(parameter, _no_memory(parameter, device))
        self.fill_buffers(model, device)
        return model.eval()

    def fill_buffers(self, model: nn.Module, device: torch.device) -> None:
        """Materialize the buffers of a copy."""
        for buffer, recorded in zip(model.buffers(), self.model.buffers(), strict=True):
            swap_content(buffer, self.recorder.made(recorded).to(device, copy=True))


def swap_content(tensor: Tensor, content: Tensor) -> None:
    """Swap another tensor's content into a tensor, which stays the same object."""
    if isinstance(tensor, nn.Parameter):
        content = nn.Parameter(content, requires_grad=tensor.requires_grad)
    swap_tensors(tensor, content)


@contextlib.contextmanager
def lend_memory(model: nn.Module) -> Iterator[None]:
    """Allocate memory for the parameters of a `shell` within a context, then free it."""
    try:
        for parameter in model.parameters():
            parameter.data = torch.empty_like(parameter, memory_format=torch.contiguous_format)
        yield
    finally:
        for part in model.modules():
            if isinstance(part, ArraySteps):
                part.forget_prepared()
        for parameter in model.parameters():
            parameter.data = _no_memory(parameter, parameter.device)


def _no_memory(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the same shape and type that stores a single number."""
    return torch.empty((), dtype=tensor.dtype, device=device).expand(tensor.shape)
