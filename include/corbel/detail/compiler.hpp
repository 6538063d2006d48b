// What depends on the compiler, and nothing else.
#pragma once

// Opens and closes a part of a file in which a*b+c is never fused by the compiler (results do not depend on compiler,
// flags or machine; see docs/concepts/numerics.md). Open it at file scope, outside any namespace, after all includes.
// clang's -ffp-contract=fast on the command line overrides any pragma: the build system never passes it.
#if defined(__clang__)
#define CORBEL_EXACT_FP_BEGIN _Pragma("float_control(push)") _Pragma("clang fp contract(off)")
#define CORBEL_EXACT_FP_END _Pragma("float_control(pop)")
#elif defined(__GNUC__)
#define CORBEL_EXACT_FP_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#define CORBEL_EXACT_FP_END _Pragma("GCC pop_options")
#else
#define CORBEL_EXACT_FP_BEGIN
#define CORBEL_EXACT_FP_END
#endif
