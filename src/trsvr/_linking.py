"""How Numba makes machine code of our functions: once, of a whole call tree.

Numba's habit is to optimise every function that a compiled function calls, to translate it into machine code, to link
it into its caller, and to optimise the caller with it again, on every level of the tree. Ours are many small functions
that only compiled code calls, six levels deep: most of the time went into code that nobody ever ran. So a function is
either a *part*, which is typed and lowered and then waits for its callers, or a *whole*, which is called from Python
and is optimised, with all its parts, in one go.

Both are Numba's pipeline with another library of code; ``PART`` and ``WHOLE`` are options of its decorators.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.environment import lookup_environment
from numba.core.typed_passes import IRLegalization, NativeLowering


class _NoCode:
    """What a part has of machine code: no place for its environment."""

    def set_env(self, name: str, environment: Any) -> None:
        """The whole has a place for it."""


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba carries no types
    """The code of a part and of what it calls, as it was lowered."""

    codegen = _NoCode()

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Nobody calls it from outside."""
        return 0


class _WholeLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a whole: one round of optimisation, and none that looks for reference counts, as there are none."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # What was linked in belongs to this whole alone. Were it visible, the same function in the code of another
        # whole, optimised with other callers, would be run instead wherever that happened to be loaded first.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = "internal"
        passes = self._codegen._module_pass_manager()
        passes, *builder = passes if isinstance(passes, tuple) else (passes,)  # Numba 0.61 has no builder
        passes.run(self._final_module, *builder)


class _Pass(LoweringPass):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()


@register_pass(mutates_CFG=False, analysis_only=False)
class _BeginPart(_Pass):
    """Lower into the library of a part."""

    _name = "trsvr_begin_part"

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _BeginWhole(_Pass):
    """Lower into the library of a whole."""

    _name = "trsvr_begin_whole"

    def run_pass(self, state: Any) -> bool:
        state.library = _WholeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _FinishWhole(_Pass):
    """Give the parts their environments, which printing and the like need, now that there are places for them."""

    _name = "trsvr_finish_whole"

    def run_pass(self, state: Any) -> bool:
        for known in state.library._final_module.global_variables:
            if known.name.startswith("_ZN08NumbaEnv"):
                environment = lookup_environment(known.name)
                if environment is not None:
                    state.targetctx.codegen().set_env(known.name, environment)
        return True


class _PartCompiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_BeginPart, IRLegalization)
        passes.finalize()
        return [passes]


class _WholeCompiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_BeginWhole, IRLegalization)
        passes.add_pass_after(_FinishWhole, NativeLowering)
        passes.finalize()
        return [passes]


PART: dict[str, Any] = {"pipeline_class": _PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
WHOLE: dict[str, Any] = {"pipeline_class": _WholeCompiler, "no_cfunc_wrapper": True}
