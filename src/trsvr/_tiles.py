"""Products of blocks of rows with few to many columns, in vector registers: rows times W, and rowsᵀ times a table.

A BLAS is at its best where all three sizes are large. Here one is a number of outputs, often ten: a tile of the result
stays in registers while rows or columns go by. Whatever has a column for each output is padded to whole vectors.
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
from trsvr._intrinsics import matrix_in
from trsvr._linking import PART

# Bytes of a vector (shorter ones are used in pairs).
_BYTES = 64
# How high tiles of one, two and three vectors are, as far as registers have room for the sums.
_HIGH = (16, 8, 8) if binding.get_host_cpu_features().get("avx512f", False) else (6,)
_WIDE = len(_HIGH)
#: Rows are best cut into multiples of this, on any machine.
STEP = 48


def lanes(kind: DTypeLike) -> int:
    """Numbers in a vector."""
    return _BYTES // np.dtype(kind).itemsize


def padded(outputs: int, kind: DTypeLike) -> int:
    """Columns of a table with a number for each output."""
    return -(-outputs // lanes(kind)) * lanes(kind)


def packed(weights: Matrix, kind: DTypeLike) -> NDArray[Any]:
    """W as `times_packed` reads it: the columns of a tile lie together."""
    width, together = padded(weights.shape[1], kind), _WIDE * lanes(kind)
    whole = np.zeros((len(weights), width), kind)
    whole[:, : weights.shape[1]] = weights
    return np.concatenate([whole[:, first : first + together].ravel() for first in range(0, width, together)])


def times_packed(rows: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]) -> None:
    """``out`` = rows W; all are of one type, and the numbers of a row of each lie side by side."""
    together, columns = _WIDE * lanes(rows.dtype), rows.shape[1]
    for first in range(0, out.shape[1], together):
        tile = out[:, first : first + together]
        tile[:] = rows @ weights[columns * first :][: columns * tile.shape[1]].reshape(columns, -1)


def add_turned(rows: NDArray[Any], table: NDArray[Any], out: NDArray[Any]) -> None:
    """Add rowsᵀ table to ``out``, which may be of a longer type."""
    out += rows.T @ table


def _tile(high: int, wide: int, turned: bool) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
    def tile(typing_context: Any, a: Any, count: Any, b: Any, out: Any) -> Any:
        """Σ_k a[t, k] b[k, …] for the first ``high`` t in ``out``, of k below ``count``; or a[k, t], and added."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            single, short = (kind.dtype == types.float32 for kind in (a, out))
            integer, size = ir.IntType(64), 4 if single else 8
            lanes = _BYTES // size
            vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), lanes)
            result = ir.VectorType(ir.FloatType() if short else ir.DoubleType(), lanes)
            arrays = [context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 3)]
            memory = [builder.bitcast(array.data, ir.IntType(8).as_pointer()) for array in arrays]
            source, factor, target = (cgutils.unpack_tuple(builder, array.strides)[0] for array in arrays)
            along, down = (integer(size), source) if turned else (source, integer(size))

            def at(which: int, place: Any, offset: Any, kind: Any) -> Any:
                return builder.bitcast(builder.gep(memory[which], [builder.add(place, offset)]), kind.as_pointer())

            def in_all_lanes(number: Any) -> Any:
                nothing, everywhere = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), lanes)
                first = builder.insert_element(nothing, number, ir.IntType(32)(0))
                return builder.shuffle_vector(first, nothing, ir.Constant(everywhere, [0] * lanes))

            kind = ir.FunctionType(vector, [vector] * 3)
            name = f"llvm.fmuladd.v{lanes}f{8 * size}"
            multiply_add = cgutils.get_or_insert_function(builder.module, kind, name)
            tile = [(t, w) for t in range(high) for w in range(wide)]
            before, loop, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("end")
            builder.branch(loop)
            builder.position_at_end(loop)
            k, sums = builder.phi(integer), [builder.phi(vector) for _ in tile]
            begin, line = builder.mul(k, down), builder.mul(k, factor)
            numbers = [builder.load(at(1, line, integer(_BYTES * w), vector), align=size) for w in range(wide)]
            places = [at(0, begin, builder.mul(along, integer(t)), vector.element) for t in range(high)]
            factors = [in_all_lanes(builder.load(place)) for place in places]
            added = [
                builder.call(multiply_add, [factors[t], numbers[w], known])
                for (t, w), known in zip(tile, sums, strict=True)
            ]
            following = builder.add(k, integer(1))
            k.add_incoming(integer(0), before)
            k.add_incoming(following, loop)
            for known, new in zip(sums, added, strict=True):
                known.add_incoming(ir.Constant(vector, [0.0] * lanes), before)
                known.add_incoming(new, loop)
            builder.cbranch(builder.icmp_signed("<", following, arguments[1]), loop, after)
            builder.position_at_end(after)
            for (t, w), found in zip(tile, added, strict=True):
                step = integer((4 if short else 8) * lanes * w)
                place = at(2, builder.mul(target, integer(t)), step, result)
                total = found if single == short else builder.fpext(found, result)
                total = builder.fadd(builder.load(place, align=4), total) if turned else total
                builder.store(total, place, align=4)
            return context.get_dummy_value()

        return types.void(a, types.intp, b, out), generate

    return tile


_SIZES = *((_HIGH[min(w, _WIDE - 1)], w + 1) for w in range(3)), (1, 1)
_one, _two, _three, _low = (_tile(*size, turned=False) for size in _SIZES)
_add_one, _add_two, _add_three, _add_low = (_tile(*size, turned=True) for size in _SIZES)


@overload(times_packed, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_times_packed(rows: Any, weights: Any, out: Any) -> Any:
    lanes, most, high = _BYTES // (4 if rows.dtype == types.float32 else 8), _WIDE, _HIGH

    def times(rows: Any, weights: Any, out: Any) -> None:
        count, columns = rows.shape
        for first in range(0, out.shape[1], most * lanes):
            wide = min(most * lanes, out.shape[1] - first)
            panel, table = matrix_in(weights[columns * first :], columns, wide), out[:, first:]
            step = high[wide // lanes - 1]
            whole = count // step * step
            for i in range(0, whole, step):
                if wide == lanes:
                    _one(rows[i:], columns, panel, table[i:])
                elif wide == 2 * lanes:
                    _two(rows[i:], columns, panel, table[i:])
                else:
                    _three(rows[i:], columns, panel, table[i:])
            for i in range(whole, count):
                for place in range(0, wide, lanes):
                    _low(rows[i:], columns, panel[:, place:], table[i:, place:])

    return times


@overload(add_turned, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_turned(rows: Any, table: Any, out: Any) -> Any:
    lanes, most, high = _BYTES // (4 if rows.dtype == types.float32 else 8), _WIDE, _HIGH

    def add(rows: Any, table: Any, out: Any) -> None:
        count, columns = rows.shape
        for first in range(0, table.shape[1] if count > 0 else 0, most * lanes):
            wide = min(most * lanes, table.shape[1] - first)
            numbers, sums = table[:, first:], out[:, first:]
            step = high[wide // lanes - 1]
            whole = columns // step * step
            for j in range(0, whole, step):
                if wide == lanes:
                    _add_one(rows[:, j:], count, numbers, sums[j:])
                elif wide == 2 * lanes:
                    _add_two(rows[:, j:], count, numbers, sums[j:])
                else:
                    _add_three(rows[:, j:], count, numbers, sums[j:])
            for j in range(whole, columns):
                for place in range(0, wide, lanes):
                    _add_low(rows[:, j:], count, numbers[:, place:], sums[j:, place:])

    return add
