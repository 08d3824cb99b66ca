"""Decorators that compile kernels with numba.

A *kernel* is called from Python. Only kernels call an *inner* function: numba infers its types, and LLVM optimises and
translates it as a part of each kernel that calls it. So it has no machine code of its own, which halves the time of a
cold start, and a kernel does not depend on what else is in the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, _LowerResult
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    InlineInlinables,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)

from windvane.errors import WindvaneError
from windvane.kernels.cache import cached

_njit: Any = numba.njit  # its type stubs lack some options
_config: Any = numba.config

F = TypeVar("F", bound=Callable[..., Any])

# Sums can be reordered so that they vectorise. NaN and infinity keep their meaning: inputs are checked in Python, but a
# diverging line search must still see infinite values.
REORDER_SUMS = {"reassoc", "contract", "nsz"}
FUSE_ONLY = {"contract"}

LARGEST_INLINED = 16  # basic blocks; a larger inner function is called, because inlining it is slow to compile

# Numba's passes, without those for features that kernels do not use: closures, literals, array expressions.
FRONT_END = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,
    InlineInlinables,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
)


class _InnerCode(JITCodeLibrary):
    """The LLVM code of an inner function. It is optimised and translated as a part of the kernels that call it."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if sum(1 for _ in function.blocks) > LARGEST_INLINED:
                function.add_function_attribute("noinline")

    def finalize(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerInner(NativeLowering):
    """Numba's last pass, for an inner function: no machine code, and no entry point for Python."""

    _name = "lower_inner"

    def run_pass(self, state: Any) -> bool:
        state.library = library = _InnerCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        callees, library._linking_libraries = dict.fromkeys(library._linking_libraries), []  # linked by the callers
        lowered = state["cr"]
        key = [lowered.fndesc].__getitem__  # numba requires a built-in method; this one rejects a tuple of arguments
        state.targetctx.insert_user_function(key, lowered.fndesc, [library, *callees])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=key, env=lowered.env)
        return True


class _Flags(Flags):
    """Numba's flags with a fast comparison, because numba looks them up for every operation of a function."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Flags) and bool(self._values == other._values)

    def __hash__(self) -> int:
        return 0  # as in numba, where all flags have the same hash; there are only a few


class _KernelCompiler(CompilerBase):
    """Numba's compiler with the passes in ``FRONT_END`` only."""

    lowering: Any = NativeLowering

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, *rest: Any) -> None:
        flags, local_types = rest
        super().__init__(typingctx, targetctx, library, args, return_type, _Flags(flags), local_types)

    def define_pipelines(self) -> list[Any]:
        passes = PassManager("kernel")
        for step in (*FRONT_END, self.lowering, NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class _InnerCompiler(_KernelCompiler):
    """The compiler of inner functions."""

    lowering = _LowerInner


def _decorate(function: F, fastmath: set[str] = FUSE_ONLY, **options: Any) -> F:
    if _config.DISABLE_JIT:
        raise WindvaneError("windvane cannot run without numba's compiler: unset NUMBA_DISABLE_JIT")
    decorated: F = _njit(
        nogil=True,
        fastmath=fastmath,
        error_model="numpy",  # division by zero gives inf; loops vectorise without a check for it
        no_cfunc_wrapper=True,
        _nrt=False,  # kernels create no arrays; without reference counts they compile in half the time
        **{"pipeline_class": _KernelCompiler, **options},
    )(function)
    return decorated


def compiled(function: F) -> F:
    """Compile a kernel that is called from Python: IEEE order of operations, with fused multiply-add."""
    return cached(_decorate(function), function)


def compiled_inner(function: F, fastmath: set[str] = FUSE_ONLY) -> F:
    """Compile like :func:`compiled`, for a function that only kernels call."""
    return _decorate(function, fastmath, no_cpython_wrapper=True, pipeline_class=_InnerCompiler)


def compiled_sums(function: F) -> F:
    """Compile like :func:`compiled_inner`, with reordered sums: for plain reductions over the history."""
    return compiled_inner(function, REORDER_SUMS)


def compiled_view(function: F) -> F:
    """Compile like :func:`compiled_inner`, for a function that returns a view. Numba inlines it in its callers."""
    return _decorate(function, inline="always")


@functools.cache
def callable_kernel(kernel: Any) -> Any:
    """Return a version of a compiled function that Python can call: for custom links and tests."""
    function, options = kernel.py_func, kernel.targetoptions
    is_inner = options.get("no_cpython_wrapper", False)
    return cached(_decorate(function, options["fastmath"]), function) if is_inner else kernel
