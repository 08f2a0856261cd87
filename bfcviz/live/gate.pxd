# The functions NumPy calls for its memory, in C; gate.py beside this file is the same through ctypes.

from bfcviz.native cimport u32, u64

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>

    /* NumPy's PyDataMem_Handler, version 1 (numpy/ndarraytypes.h). */
    typedef struct {
        void *context;
        void *(*malloc)(void *, size_t);
        void *(*calloc)(void *, size_t, size_t);
        void *(*realloc)(void *, void *, size_t);
        void (*free)(void *, void *, size_t);
    } bfc_functions;
    typedef struct { char name[127]; uint8_t version; bfc_functions functions; } bfc_handler;

    typedef struct bfc_gate {
        bfc_handler handler;            /* first: NumPy's pointer is ours */
        const bfc_functions *plain;     /* NumPy's own */
        void *heap;
        void *(*serve)(void *, size_t, uint32_t);
        int (*take_back)(void *, void *);
        uint64_t (*requested)(void *, void *);
        void (*totals)(void *, uint64_t *);
        void *walk;
        uint32_t (*capture)(void *, uint32_t);  /* label -> that and the Python stack (walk.pxd); NULL: not wanted */
        size_t small;                   /* requests below are NumPy's own */
        uint32_t labels;                /* number of the table of labels this heap writes */
        int forks;                      /* of its process; another number: this is a child */
        int open;                       /* whether new requests are served */
        uint64_t passed;                /* requests left to NumPy itself, while open */
        uint64_t failures;              /* requests answered NULL */
        uint64_t failure[4];            /* the last: requested; pool, in use, largest free chunk after it */
        struct bfc_late *late;          /* frees that must wait, a stack */
    } bfc_gate;
    typedef struct bfc_late { struct bfc_late *next; size_t size; } bfc_late;  /* written into the freed memory */

    static int bfc_forks = 0;
    /* Set while this thread is in a heap: what Python does there, on rare paths, may want memory, or free some. */
    static __thread int bfc_inside __attribute__((tls_model("initial-exec"))) = 0;
    static __thread uint64_t bfc_label __attribute__((tls_model("initial-exec"))) = 0;

    static void bfc_in_child(void) { bfc_forks++; }

    static void bfc_give_back(bfc_gate *g, void *p, size_t size) {
        if (g->forks != bfc_forks) {    /* the books are the parent's: its chunks stay, others are NumPy's own */
            if (!g->requested(g->heap, p)) g->plain->free(g->plain->context, p, size);
            return;
        }
        bfc_inside = 1;
        int reason = g->take_back(g->heap, p);
        bfc_inside = 0;
        if (reason == 3 /* native.FREE_FOREIGN */) g->plain->free(g->plain->context, p, size);
    }
    static void bfc_give_late_ones_back(bfc_gate *g) {
        bfc_late *late = __atomic_exchange_n(&g->late, NULL, __ATOMIC_ACQ_REL);
        while (late) {
            bfc_late *next = late->next;
            bfc_give_back(g, late, late->size);
            late = next;
        }
    }
    static inline void bfc_see_to_late_ones(bfc_gate *g) {
        if (__atomic_load_n(&g->late, __ATOMIC_RELAXED)) bfc_give_late_ones_back(g);
    }
    static inline int bfc_is_served(bfc_gate *g, size_t size) {
        if (!__atomic_load_n(&g->open, __ATOMIC_RELAXED)) return 0;
        if (size >= g->small && !bfc_inside && g->forks == bfc_forks) return 1;
        __atomic_add_fetch(&g->passed, 1, __ATOMIC_RELAXED);
        return 0;
    }
    static void bfc_note_failure(bfc_gate *g, size_t size) {
        g->failure[0] = size;
        g->totals(g->heap, g->failure + 1);
        __atomic_add_fetch(&g->failures, 1, __ATOMIC_RELEASE);
    }
    static void *bfc_serve(bfc_gate *g, size_t size) {
        uint32_t label = bfc_label >> 32 == g->labels ? (uint32_t)bfc_label : 0;
        bfc_inside = 1;
        if (g->capture) label = g->capture(g->walk, label);
        void *p = g->serve(g->heap, size ? size : 1, label);
        if (!p) bfc_note_failure(g, size);
        bfc_inside = 0;
        bfc_see_to_late_ones(g);
        return p;
    }

    static void *bfc_np_malloc(void *context, size_t size) {
        bfc_gate *g = (bfc_gate *)context;
        return bfc_is_served(g, size) ? bfc_serve(g, size) : g->plain->malloc(g->plain->context, size);
    }
    #define BFC_FORGET_FROM ((size_t)32 << 20)
    /* A chunk may have been used before. The pages of a large one go, and come back as zeros when they are touched. */
    static void bfc_clear(char *p, size_t size) {
    #if defined(__linux__)
        if (size >= BFC_FORGET_FROM) {
            size_t page = (size_t)sysconf(_SC_PAGESIZE), head = (page - (uintptr_t)p % page) % page;
            size_t whole = (size - head) / page * page;
            if (madvise(p + head, whole, MADV_DONTNEED) == 0) {
                memset(p, 0, head);
                memset(p + head + whole, 0, size - head - whole);
                return;
            }
        }
    #endif
        memset(p, 0, size);
    }
    static void *bfc_np_calloc(void *context, size_t count, size_t item) {
        bfc_gate *g = (bfc_gate *)context;
        if (item && count > SIZE_MAX / item) return NULL;
        if (!bfc_is_served(g, count * item)) return g->plain->calloc(g->plain->context, count, item);
        char *p = (char *)bfc_serve(g, count * item);
        if (p) bfc_clear(p, count * item);
        return p;
    }
    static void bfc_np_free(void *context, void *p, size_t size) {
        bfc_gate *g = (bfc_gate *)context;
        if (!p) return;
        if (bfc_inside) {
            bfc_late *late = (bfc_late *)p;
            late->size = size;
            late->next = __atomic_load_n(&g->late, __ATOMIC_RELAXED);
            while (!__atomic_compare_exchange_n(
                &g->late, &late->next, late, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
            return;
        }
        bfc_give_back(g, p, size);
        bfc_see_to_late_ones(g);
    }
    static void *bfc_np_realloc(void *context, void *old, size_t size) {
        bfc_gate *g = (bfc_gate *)context;
        if (!old) return bfc_np_malloc(context, size);
        if (bfc_inside) return NULL;
        uint64_t had = g->requested(g->heap, old);
        if (!had) return g->plain->realloc(g->plain->context, old, size);
        void *p = bfc_np_malloc(context, size);
        if (!p) return NULL;
        memcpy(p, old, had < size ? had : size);
        bfc_np_free(context, old, had);
        return p;
    }

    static bfc_gate *bfc_gate_new(const size_t *hooks, size_t plain, size_t small, uint32_t labels) {
        static int minds_forks = 0;
        bfc_gate *g = (bfc_gate *)calloc(1, sizeof *g);
        if (!g) return NULL;
        if (!minds_forks) minds_forks = !pthread_atfork(NULL, NULL, bfc_in_child);
        strcpy(g->handler.name, "bfcviz");
        g->handler.version = 1;
        g->handler.functions =
            (bfc_functions){g, bfc_np_malloc, bfc_np_calloc, bfc_np_realloc, bfc_np_free};
        g->plain = &((const bfc_handler *)plain)->functions;
        g->heap = (void *)hooks[0];
        g->serve = (void *(*)(void *, size_t, uint32_t))hooks[1];
        g->take_back = (int (*)(void *, void *))hooks[2];
        g->requested = (uint64_t (*)(void *, void *))hooks[3];
        g->totals = (void (*)(void *, uint64_t *))hooks[4];
        g->walk = (void *)hooks[5];
        g->capture = (uint32_t (*)(void *, uint32_t))hooks[6];
        g->small = small;
        g->labels = labels;
        g->forks = bfc_forks;
        return g;
    }
    static void bfc_gate_delete(bfc_gate *g) {
        if (!g) return;
        bfc_give_late_ones_back(g);
        free(g);
    }

    /* The capsule NumPy knows a handler by: it keeps `keeper`, which keeps gate and heap, and every array keeps it. */
    static void bfc_let_go(PyObject *capsule) { Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule)); }
    static PyObject *bfc_capsule(bfc_gate *g, PyObject *keeper) {
        PyObject *capsule = PyCapsule_New(&g->handler, "mem_handler", bfc_let_go);
        if (!capsule || PyCapsule_SetContext(capsule, keeper)) { Py_XDECREF(capsule); return NULL; }
        Py_INCREF(keeper);
        return capsule;
    }
    static uint64_t bfc_label_get(void) { return bfc_label; }
    static void bfc_label_set(uint64_t label) { bfc_label = label; }
    """
    ctypedef struct Gate "bfc_gate":
        bint is_open "open"
        u64 passed
        u64 failures
        u64 failure[4]

    Gate *bfc_gate_new(const size_t *, size_t, size_t, u32)
    void bfc_gate_delete(Gate *)
    void bfc_give_late_ones_back(Gate *)
    object bfc_capsule(Gate *, object)
    u64 bfc_label_get()
    void bfc_label_set(u64)

cdef inline Gate *new(object allocator, size_t plain, size_t small, u32 labels, object walker) except NULL:
    cdef size_t hooks[7]
    hooks[0], hooks[1], hooks[2], hooks[3], hooks[4] = allocator.hooks()
    hooks[5], hooks[6] = (0, 0) if walker is None else walker.hook()
    cdef Gate *made = bfc_gate_new(hooks, plain, small, labels)
    if made == NULL:
        raise MemoryError()
    return made

cdef inline void delete(Gate *gate) noexcept:
    bfc_gate_delete(gate)

cdef inline object capsule(Gate *gate, object keeper):
    return bfc_capsule(gate, keeper)

cdef inline void settle(Gate *gate) noexcept:
    bfc_give_late_ones_back(gate)

cdef inline tuple failure(Gate *gate):
    return gate.failures, gate.failure[0], gate.failure[1], gate.failure[2], gate.failure[3]

cdef inline u64 label() noexcept:
    return bfc_label_get()

cdef inline void set_label(u64 value) noexcept:
    bfc_label_set(value)
