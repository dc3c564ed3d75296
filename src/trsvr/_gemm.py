"""A product of two matrices from compiled code, by the BLAS that SciPy brings and Numba knows how to find."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from trsvr._arrays import Matrix
from trsvr._linking import PART


def gemm(a: Matrix, a_turned: bool, b: Matrix, b_turned: bool, out: Matrix, add: bool) -> None:
    """``out`` = a b, or with ``add`` plus what it was; a and b are transposed where they are ``turned``.

    All are of one type, float32 or float64, and the numbers of a row of each lie side by side.
    """
    product = (a.T if a_turned else a) @ (b.T if b_turned else b)
    out[:] = out + product if add else product


@overload(gemm, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_gemm(a: Any, a_turned: Any, b: Any, b_turned: Any, out: Any, add: Any) -> Any:
    return lambda a, a_turned, b, b_turned, out, add: _gemm(a, a_turned, b, b_turned, out, add)


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _gemm(typing_context: Any, a: Any, a_turned: Any, b: Any, b_turned: Any, out: Any, add: Any) -> Any:
    """A call of ``xxgemm``, which takes matrices column by column: to it ours are transposed, and so is their order."""
    if not a.dtype == b.dtype == out.dtype or out.dtype not in (types.float32, types.float64):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        character, integer, pointer = ir.IntType(8), ir.IntType(64), ir.IntType(8).as_pointer()
        first, second, result = (
            context.make_array(signature.args[place])(context, builder, arguments[place]) for place in (0, 2, 4)
        )
        m, n = cgutils.unpack_tuple(builder, result.shape)
        k, other = cgutils.unpack_tuple(builder, first.shape)
        k = builder.select(arguments[1], k, other)
        number = context.get_value_type(out.dtype)
        size = integer(4 if out.dtype == types.float32 else 8)
        one, zero = ir.Constant(number, 1.0), ir.Constant(number, 0.0)
        factor = cgutils.alloca_once_value(builder, one)
        before = cgutils.alloca_once_value(builder, builder.select(arguments[5], one, zero))

        def operation(turned: Any) -> Any:
            return builder.select(turned, character(ord("T")), character(ord("N")))

        def memory(array: Any) -> tuple[Any, Any]:
            stride = cgutils.unpack_tuple(builder, array.strides)[0]
            return builder.bitcast(array.data, pointer), builder.sdiv(stride, size)

        sizes = [character] * 3 + [integer] * 3
        kind = ir.FunctionType(
            ir.IntType(32), [*sizes, pointer, pointer, integer, pointer, integer, pointer, pointer, integer]
        )
        function = cgutils.get_or_insert_function(builder.module, kind, "numba_xxgemm")
        builder.call(
            function,
            [
                character(ord("s" if out.dtype == types.float32 else "d")),
                *(operation(arguments[3]), operation(arguments[1]), n, m, k),
                builder.bitcast(factor, pointer),
                *(*memory(second), *memory(first)),
                builder.bitcast(before, pointer),
                *memory(result),
            ],
        )
        return context.get_dummy_value()

    return types.void(a, types.boolean, b, types.boolean, out, types.boolean), generate
