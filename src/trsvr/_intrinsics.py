"""What formulas and kernels say in two ways: NumPy's for arrays, machine instructions for a number when compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, overload, register_jitable, type_callable
from numba.np.arrayobj import populate_array

from trsvr._linking import PART

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
            if getattr(pointer.type, "is_opaque", False)  # llvmlite of Numba 0.61 types its pointers
            else "llvm.prefetch.p0i8",
        )
        # Arguments of the instruction: for reading, keep in all cache levels, data and not code.
        builder.call(function, [pointer, _INT32(0), _INT32(3), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _fetch_add(typing_context: Any, counter: Any) -> Any:
    """Atomic ``counter[0] += 1`` that returns the value from before; what was written earlier is seen after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", memory.data, ir.IntType(64)(1), "acq_rel")

    return types.int64(counter), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _read(typing_context: Any, counter: Any) -> Any:
    """``counter[0]`` as it is now, whoever wrote it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load_atomic(memory.data, "acquire", 8)

    return types.int64(counter), generate


def matrix_in(vector: Any, rows: int, columns: int) -> Any:
    """The first entries of a vector as a rows × columns matrix, row by row; nothing is copied.

    Compiled, it is a few instructions: NumPy's ``reshape`` takes longer to compile than the loops that use it.
    """
    return vector[: rows * columns].reshape(rows, columns)


@type_callable(matrix_in)  # type: ignore[untyped-decorator]  # Numba carries no types
def _type_of_matrix_in(context: Any) -> Any:
    return lambda vector, rows, columns: types.Array(vector.dtype, 2, "C")


@lower_builtin(matrix_in, types.Array, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _compiled_matrix_in(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kinds = signature.args
    memory = context.make_array(kinds[0])(context, builder, arguments[0])
    rows, columns = (context.cast(builder, arguments[k], kinds[k], types.intp) for k in (1, 2))
    matrix = context.make_array(signature.return_type)(context, builder)
    size = memory.itemsize
    strides = [builder.mul(columns, size), size]
    populate_array(matrix, memory.data, [rows, columns], strides, size, memory.meminfo, memory.parent)
    return matrix._getvalue()


def whole_numbers_in(vector: Any) -> Any:
    """The memory of a vector of floats as whole numbers of 32 bits, in the same way."""
    return vector.view(np.uint32)


@type_callable(whole_numbers_in)  # type: ignore[untyped-decorator]  # Numba carries no types
def _type_of_whole_numbers_in(context: Any) -> Any:
    return lambda vector: types.Array(types.uint32, 1, "C")


@lower_builtin(whole_numbers_in, types.Array)  # type: ignore[untyped-decorator]
def _compiled_whole_numbers_in(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    memory = context.make_array(signature.args[0])(context, builder, arguments[0])
    numbers = context.make_array(signature.return_type)(context, builder)
    size = context.get_constant(types.intp, 4)
    count = builder.udiv(builder.mul(memory.nitems, memory.itemsize), size)
    data = builder.bitcast(memory.data, numbers.data.type)
    populate_array(numbers, data, [count], [size], size, memory.meminfo, memory.parent)
    return numbers._getvalue()


def prefetch(array: Any, position: int) -> None:
    """Ask the memory for an element that will be needed soon; plain Python has no use for it."""


@overload(prefetch, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_prefetch(array: Any, position: Any) -> Any:
    return lambda array, position: _prefetch(array, position)


def fetch_add(counter: Any) -> int:
    """Take the next number from a counter that several threads share."""
    value = int(counter[0])
    counter[0] += 1
    return value


@overload(fetch_add, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_fetch_add(counter: Any) -> Any:
    return lambda counter: _fetch_add(counter)


def read_shared(counter: Any) -> int:
    """Look at a counter that another thread may change."""
    return int(counter[0])


@overload(read_shared, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_read_shared(counter: Any) -> Any:
    return lambda counter: _read(counter)


# --------------------------------------------------------------- exponentials and logarithms, in vector registers

# t = n log 2 + r with |r| ≤ (log 2)/2; log 2 in two parts, the first with so few digits that n times it is exact.
_LOG2_HIGH, _LOG2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6
_INVERSE_LOG2 = 1.4426950408889634
# Adding 1.5 · 2⁵² leaves the nearest whole number in the low bits of the sum.
_ROUNDING = 6755399441055744.0
_SMALLEST, _LARGEST = 708.0, 709.0
_TINY = float(np.finfo(float).tiny)
_ROOT_2 = 1.4142135623730951


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _bits(typing_context: Any, number: Any) -> Any:
    """The 64 bits of a float, as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _float_of(typing_context: Any, bits: Any) -> Any:
    """The float with these 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _two_to_the(typing_context: Any, exponent: Any) -> Any:
    """2ⁿ from the low bits of n: they are the exponent of a float."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)
        return builder.bitcast(builder.shl(builder.add(arguments[0], whole(1023)), whole(52)), ir.DoubleType())

    return types.float64(types.int64), generate


@register_jitable(**PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _exp(x: Any) -> Any:
    """exp(x) for −708 ≤ x ≤ 709."""
    shifted = x * _INVERSE_LOG2 + _ROUNDING
    n = shifted - _ROUNDING
    r = (x - n * _LOG2_HIGH) - n * _LOG2_LOW
    # Taylor's polynomial of degree 13: its remainder is below 1e-17.
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _two_to_the(_bits(shifted))


def exp_minus(t: Any) -> Any:
    """exp(−t) for t ≥ 0, a number or an array, at least exp(−708).

    Compiled, it is plain arithmetic without branches, so that a loop over rows runs in vector registers: six times as
    fast as the library's exp, and wrong in the last bit at most. NaN stays NaN.
    """
    return np.exp(-np.minimum(t, _SMALLEST))


@overload(exp_minus, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_exp_minus(t: Any) -> Any:
    return lambda t: _exp(-_SMALLEST if t > _SMALLEST else -t)


def exp_of(t: Any) -> Any:
    """exp(t) for any t, in the same way: at least exp(−708), and infinite beyond 709."""
    return np.where(t > _LARGEST, np.inf, np.exp(np.clip(t, -_SMALLEST, _LARGEST)))


@overload(exp_of, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_exp_of(t: Any) -> Any:
    def exponential(t: Any) -> Any:
        inside = -_SMALLEST if t < -_SMALLEST else (_LARGEST if t > _LARGEST else t)
        found = _exp(inside)
        return np.inf if t > _LARGEST else found

    return exponential


def log_of(y: Any) -> Any:
    """log(y) for y ≥ 0, in the same way; what is smaller than 2⁻¹⁰²² counts as that."""
    return np.log(np.maximum(y, _TINY))


@overload(log_of, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_log_of(y: Any) -> Any:
    def logarithm(y: Any) -> Any:
        bits = _bits(_TINY if y < _TINY else y)
        # The exponent's bits behind those of 2⁵² are a float that is larger than 2⁵² by them.
        exponent = _float_of((bits >> 52) | 0x4330000000000000) - (4503599627370496.0 + 1023.0)
        part = _float_of((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000)
        large = part > _ROOT_2
        part = 0.5 * part if large else part
        exponent = exponent + 1.0 if large else exponent
        # log m = 2 artanh s with |s| ≤ 0.172; the remainder of the series is below 1e-17.
        s = (part - 1.0) / (part + 1.0)
        q = s * s
        p = 1.0 / 21.0
        p = p * q + 1.0 / 19.0
        p = p * q + 1.0 / 17.0
        p = p * q + 1.0 / 15.0
        p = p * q + 1.0 / 13.0
        p = p * q + 1.0 / 11.0
        p = p * q + 1.0 / 9.0
        p = p * q + 1.0 / 7.0
        p = p * q + 1.0 / 5.0
        p = p * q + 1.0 / 3.0
        p = p * q + 1.0
        return (2.0 * s * p + exponent * _LOG2_LOW) + exponent * _LOG2_HIGH

    return logarithm


# ------------------------------------------------------------------------------------- formulas, of numbers or arrays


@overload(np.where, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_where(condition: Any, x: Any, y: Any) -> Any:
    """Of three numbers: Numba's own makes an array of them, and nothing can be allocated in compiled code."""
    numbers = types.Number | types.Boolean
    if isinstance(condition, numbers) and isinstance(x, numbers) and isinstance(y, numbers):
        return lambda condition, x, y: x if condition else y
    return None


def _place(label: Any) -> Any:
    return (label.astype(np.intp, copy=False), np.arange(label.size)) if np.ndim(label) else int(label)


def entry_of(label: Any, table: Any) -> Any:
    """The label's entry of a vector; of a matrix, in every column the entry of its label."""
    return table[_place(label)]


@overload(entry_of, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_entry_of(label: Any, table: Any) -> Any:
    return lambda label, table: table[int(label)]


def add_to_entry(label: Any, amount: Any, table: Any) -> None:
    """Add to the same entries."""
    table[_place(label)] += amount


@overload(add_to_entry, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_to_entry(label: Any, amount: Any, table: Any) -> Any:
    def add(label: Any, amount: Any, table: Any) -> None:
        table[int(label)] += amount

    return add
