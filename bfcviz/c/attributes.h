/* Attributes of functions and variables that depend on the compiler. */
#pragma once

/* A header function that some files do not use: no warning; the compiler decides on inlining. */
#define BFC_STATIC static __attribute__((unused))

/* A thread-local variable, accessed without a call. */
#define BFC_THREAD static __thread __attribute__((unused, tls_model("initial-exec")))
