/* Throws PyTorch's c10::OutOfMemoryError from C, which becomes torch.OutOfMemoryError in Python.

   No library exports a function for that. This does what a C++ compiler generates for
   `throw c10::OutOfMemoryError(...)`, by the rules of the Itanium C++ ABI: memory for the exception, the
   constructor of its base c10::Error (it has none of its own, and no members), the table of its virtual
   functions, the throw. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct bfc_source_location { /* c10::SourceLocation */
    const char *function, *file;
    uint32_t line;
} bfc_source_location;

/* The functions that it calls: torch_api.OWN_ERROR names the symbols, in this order. */
typedef struct bfc_cpp {
    void *(*allocate)(size_t);                               /* __cxa_allocate_exception */
    void (*raise)(void *, void *, void (*)(void *));         /* __cxa_throw */
    void (*make_text)(void *, const char *, const void *);   /* std::string(const char *, allocator) */
    void (*drop_text)(void *);                               /* std::string's destructor */
    void (*make_error)(void *, bfc_source_location, void *); /* c10::Error(SourceLocation, std::string) */
    void **table; /* of c10::OutOfMemoryError: 0, its type, its destructor, ... */
} bfc_cpp;

typedef void (*bfc_thrower)(const char *text);

static bfc_cpp bfc_cpp_functions;

static inline void bfc_throw_out_of_memory(const char *text) {
    _Alignas(16) char string[64], allocator = 0; /* a std::string has 32 bytes */
    bfc_source_location here = {"allocate", "bfcviz", 0};
    void *error = bfc_cpp_functions.allocate(1024); /* a c10::Error has some 150 */
    bfc_cpp_functions.make_text(string, text, &allocator);
    bfc_cpp_functions.make_error(error, here, string);
    bfc_cpp_functions.drop_text(string);
    *(void ***)error = bfc_cpp_functions.table + 2;
    bfc_cpp_functions.raise(error, bfc_cpp_functions.table[1], (void (*)(void *))bfc_cpp_functions.table[2]);
}

/* The function above; it calls these functions from now on. */
static inline bfc_thrower bfc_out_of_memory_thrower(bfc_cpp functions) {
    bfc_cpp_functions = functions;
    return bfc_throw_out_of_memory;
}
