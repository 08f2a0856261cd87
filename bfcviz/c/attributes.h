/* Attributes that compilers spell differently. */
#pragma once

/* A function in a header that not every file uses: without a warning, and inlined only where it is worth it.
   */
#define BFC_STATIC static __attribute__((unused))

/* A thread's own variable, found without a call. */
#define BFC_THREAD static __thread __attribute__((unused, tls_model("initial-exec")))
