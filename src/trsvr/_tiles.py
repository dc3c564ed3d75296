"""Products of blocks of rows with few to many columns, in vector registers: rows times W, and rowsᵀ times a table.

A BLAS is at its best where all three sizes are large. Here one is a number of outputs, often ten: a tile of the result
stays in registers, a vector of outputs wide and as high as registers allow, while rows or columns go by. Whatever has
a column for each output is padded to whole vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import DTypeLike, NDArray

from trsvr._arrays import Matrix
from trsvr._linking import PART

# Bytes of a vector (shorter ones are used in pairs), and how many sums fit into the registers.
_BYTES = 64
HIGH = 16 if binding.get_host_cpu_features().get("avx512f", False) else 4


def lanes(kind: DTypeLike) -> int:
    """Numbers in a vector."""
    return _BYTES // np.dtype(kind).itemsize


def padded(outputs: int, kind: DTypeLike) -> int:
    """Columns of a table with a number for each output."""
    return -(-outputs // lanes(kind)) * lanes(kind)


def panels(weights: Matrix, kind: DTypeLike) -> NDArray[Any]:
    """W as `times_panels` wants it: as many columns as are in a vector lie together."""
    rows, outputs = weights.shape
    whole = np.zeros((rows, padded(outputs, kind)), kind)
    whole[:, :outputs] = weights
    return np.ascontiguousarray(whole.reshape(rows, -1, lanes(kind)).swapaxes(0, 1))


def times_panels(rows: NDArray[Any], panels: NDArray[Any], out: NDArray[Any]) -> None:
    """``out`` = rows W; all are of one type, and the numbers of a row of each lie side by side."""
    out[:] = rows @ np.concatenate(list(panels), axis=1)


def add_turned(rows: NDArray[Any], table: NDArray[Any], out: NDArray[Any]) -> None:
    """Add rowsᵀ table to ``out``, which may be of a longer type."""
    out += rows.T @ table


def _tile(high: int, turned: bool) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
    def tile(typing_context: Any, a: Any, count: Any, b: Any, out: Any) -> Any:
        """Σ_k a[t, k] b[k, …] for the first ``high`` t (``turned``: a[k, t], and it is added) in ``out``."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            integer, (single, short) = ir.IntType(64), (kind.dtype == types.float32 for kind in (a, out))
            size, width = (4, _BYTES // 4) if single else (8, _BYTES // 8)
            vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), width)
            result = ir.VectorType(ir.FloatType() if short else ir.DoubleType(), width)
            arrays = [context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 3)]
            source, factor, target = arrays
            strides = [cgutils.unpack_tuple(builder, array.strides)[0] for array in arrays]
            number = integer(size)
            along, down = (number, strides[0]) if turned else (strides[0], number)
            memory = [builder.bitcast(array.data, ir.IntType(8).as_pointer()) for array in arrays]

            def at(place: int, offset: Any, kind: Any) -> Any:
                return builder.bitcast(builder.gep(memory[place], [offset]), kind.as_pointer())

            nothing = ir.Constant(vector, ir.Undefined)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
            kind = ir.FunctionType(vector, [vector] * 3)
            name = f"llvm.fmuladd.v{width}f{8 * size}"
            multiply_add = cgutils.get_or_insert_function(builder.module, kind, name)
            before, loop, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("end")
            builder.branch(loop)
            builder.position_at_end(loop)
            k, sums = builder.phi(integer), [builder.phi(vector) for _ in range(high)]
            numbers = builder.load(at(1, builder.mul(k, strides[1]), vector), align=size)
            begin, added = builder.mul(k, down), []
            for t in range(high):
                place = at(0, builder.add(begin, builder.mul(along, integer(t))), vector.element)
                one = builder.insert_element(nothing, builder.load(place), ir.IntType(32)(0))
                added.append(
                    builder.call(multiply_add, [builder.shuffle_vector(one, nothing, everywhere), numbers, sums[t]])
                )
            following = builder.add(k, integer(1))
            k.add_incoming(integer(0), before)
            k.add_incoming(following, loop)
            for known, new in zip(sums, added, strict=True):
                known.add_incoming(ir.Constant(vector, [0.0] * width), before)
                known.add_incoming(new, loop)
            builder.cbranch(builder.icmp_signed("<", following, arguments[1]), loop, after)
            builder.position_at_end(after)
            for t in range(high):
                place = at(2, builder.mul(strides[2], integer(t)), result)
                found = added[t] if single == short else builder.fpext(added[t], result)
                found = builder.fadd(builder.load(place, align=4), found) if turned else found
                builder.store(found, place, align=4)
            return context.get_dummy_value()

        return types.void(a, types.intp, b, out), generate

    return tile


_high_tile, _low_tile = _tile(HIGH, False), _tile(1, False)
_high_turned, _low_turned = _tile(HIGH, True), _tile(1, True)


@overload(times_panels, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_times_panels(rows: Any, panels: Any, out: Any) -> Any:
    width, high = _BYTES // (4 if rows.dtype == types.float32 else 8), HIGH

    def times(rows: Any, panels: Any, out: Any) -> None:
        count, columns = rows.shape
        for k in range(panels.shape[0]):
            panel, table = panels[k], out[:, k * width :]
            i = 0
            while i < count:
                if i + high <= count:
                    _high_tile(rows[i:], columns, panel, table[i:])
                    i += high
                else:
                    _low_tile(rows[i:], columns, panel, table[i:])
                    i += 1

    return times


@overload(add_turned, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_turned(rows: Any, table: Any, out: Any) -> Any:
    width, high = _BYTES // (4 if rows.dtype == types.float32 else 8), HIGH

    def add(rows: Any, table: Any, out: Any) -> None:
        count, columns = rows.shape
        if count == 0:
            return
        for first in range(0, table.shape[1], width):
            j = 0
            while j < columns:
                if j + high <= columns:
                    _high_turned(rows[:, j:], count, table[:, first:], out[j:, first:])
                    j += high
                else:
                    _low_turned(rows[:, j:], count, table[:, first:], out[j:, first:])
                    j += 1

    return add
