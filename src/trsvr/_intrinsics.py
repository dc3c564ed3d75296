"""Two machine instructions that Python has no word for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

_INT32 = ir.IntType(32)


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """llvm.prefetch of the cache line that holds the element at this position of the array's memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(memory.data, [arguments[1]]), ir.IntType(8).as_pointer())
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer.type, _INT32, _INT32, _INT32]),
            "llvm.prefetch.p0"
            if isinstance(pointer.type, ir.PointerType) and pointer.type.is_opaque
            else "llvm.prefetch.p0i8",
        )
        # Arguments of the instruction: for reading, keep in all cache levels, data and not code.
        builder.call(function, [pointer, _INT32(0), _INT32(3), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _fetch_add(typing_context: Any, counter: Any) -> Any:
    """Atomic ``counter[0] += 1`` that returns the value from before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", memory.data, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), generate


def prefetch(array: Any, position: int) -> None:
    """Ask the memory for an element that will be needed soon; plain Python has no use for it."""


@overload(prefetch, strict=False)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_prefetch(array: Any, position: Any) -> Any:
    return lambda array, position: _prefetch(array, position)


def fetch_add(counter: Any) -> int:
    """Take the next number from a counter that several threads share."""
    value = int(counter[0])
    counter[0] += 1
    return value


@overload(fetch_add, strict=False)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_fetch_add(counter: Any) -> Any:
    return lambda counter: _fetch_add(counter)
