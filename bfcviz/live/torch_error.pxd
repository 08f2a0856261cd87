# Throws PyTorch's c10::OutOfMemoryError from C, which becomes torch.OutOfMemoryError in Python.
#
# No library exports a function for that. This does what a C++ compiler makes of `throw c10::OutOfMemoryError(...)`, by the
# rules of the Itanium C++ ABI: memory for the exception, the constructor of its base c10::Error (it has none of its own,
# and no members), the table of its virtual functions, the throw.

from libc.stdint cimport uint32_t

cdef extern from *:
    """
    typedef struct { const char *function, *file; uint32_t line; } bfc_source;     /* c10::SourceLocation */

    static struct {
        void *(*allocate)(size_t);                              /* __cxa_allocate_exception */
        void (*raise)(void *, void *, void (*)(void *));        /* __cxa_throw */
        void (*make_text)(void *, const char *, const void *);  /* std::string(const char *, allocator) */
        void (*drop_text)(void *);                              /* std::string's destructor */
        void (*make_error)(void *, bfc_source, void *);         /* c10::Error(SourceLocation, std::string) */
        void **table;       /* of c10::OutOfMemoryError: 0, its type, its destructor, ... */
    } bfc_cpp;

    static void bfc_throw_out_of_memory(const char *text) {
        _Alignas(16) char string[64], allocator = 0;            /* a std::string has 32 bytes */
        bfc_source here = {"allocate", "bfcviz", 0};
        void *error = bfc_cpp.allocate(1024);                   /* a c10::Error has some 150 */
        bfc_cpp.make_text(string, text, &allocator);
        bfc_cpp.make_error(error, here, string);
        bfc_cpp.drop_text(string);
        *(void ***)error = bfc_cpp.table + 2;
        bfc_cpp.raise(error, bfc_cpp.table[1], (void (*)(void *))bfc_cpp.table[2]);
    }
    static size_t bfc_out_of_memory_thrower(const size_t *parts) {
        memcpy(&bfc_cpp, parts, sizeof bfc_cpp);
        return (size_t)&bfc_throw_out_of_memory;
    }
    """
    size_t bfc_out_of_memory_thrower(const size_t *)
