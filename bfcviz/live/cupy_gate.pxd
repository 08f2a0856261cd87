# The functions CuPy calls for its memory, in C; cupy_gate.py beside this file is the same in Python.

from bfcviz.live cimport gate, raising
from bfcviz.native cimport u32, u64

cdef extern from *:
    """
    #include <Python.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <stdlib.h>

    /* One heap, for one stream of one device. */
    typedef struct bfc_cu_lane {
        struct bfc_cu_lane *next;
        int device;
        intptr_t stream;                /* as bfc_cu_stream tells it */
        void *heap;
        void *(*serve)(void *, size_t, uint32_t);
        int (*take_back)(void *, void *);
        uint64_t (*requested)(void *, void *);
        PyObject *allocator;
    } bfc_cu_lane;

    /* CuPy calls with the GIL held, so there is no other lock. */
    typedef struct {
        bfc_cu_lane *lanes;             /* newest first; they stay as long as this does */
        PyObject *owner;                /* the hook that owns this; borrowed, but for one reference while memory is out */
        PyObject *desk;                 /* Python for the rare paths; the owner's */
        intptr_t (*stream_of)(int);     /* CuPy's current stream on a device; may raise */
        uint64_t (*label)(void);
        void *walk;
        uint32_t (*capture)(void *, uint32_t);  /* label -> that and the Python stack; NULL: not wanted */
        uint32_t labels;                /* number of the table of labels the heaps write */
        int forks;                      /* of its process; another number: this is a child */
        int held;                       /* frees that wait for other streams */
        int ended;                      /* Python ends: call none */
        int inside;                     /* calls under way, which Python must not end before they return */
        uint64_t out;                   /* chunks CuPy has */
    } bfc_cu;

    static int bfc_cu_forks = 0;
    static intptr_t bfc_cu_threads = 0;
    static __thread intptr_t bfc_cu_thread __attribute__((tls_model("initial-exec"))) = 0;
    static void bfc_cu_in_child(void) { bfc_cu_forks++; }

    /* What tells streams apart: 1 is another name of the legacy default stream 0, and 2 is one of each thread. */
    static intptr_t bfc_cu_stream(bfc_cu *g, int device) {
        intptr_t stream = g->stream_of(device);
        if (stream == 1) return 0;
        if (stream != 2) return stream;
        if (!bfc_cu_thread) bfc_cu_thread = -__atomic_add_fetch(&bfc_cu_threads, 1, __ATOMIC_RELAXED);
        return bfc_cu_thread;
    }
    static bfc_cu_lane *bfc_cu_find(bfc_cu *g, int device, intptr_t stream) {
        for (bfc_cu_lane *l = g->lanes; l; l = l->next)
            if (l->device == device && l->stream == stream) return l;
        return NULL;
    }
    static bfc_cu_lane *bfc_cu_owner_of(bfc_cu *g, int device, void *p) {
        for (bfc_cu_lane *l = g->lanes; l; l = l->next)
            if (l->device == device && l->requested(l->heap, p)) return l;
        return NULL;
    }
    /* What a method of the desk answers. An error is printed, and -1: memory that cannot be held back must stay in
       use, for somebody may still read it. */
    static int bfc_cu_ask(bfc_cu *g, const char *method, void *p, int device, intptr_t stream, intptr_t now) {
        PyObject *desk = g->desk, *owner = g->owner, *answer;
        Py_INCREF(owner);
        answer = PyObject_CallMethod(
            desk, method, "KiLL", (unsigned long long)(size_t)p, device, (long long)stream, (long long)now);
        int is = answer ? PyObject_IsTrue(answer) : -1;
        if (is < 0) bfc_report(desk);
        Py_XDECREF(answer);
        Py_DECREF(owner);
        return is;
    }

    static void *bfc_cu_serve(bfc_cu *g, size_t size, int device) {
        if (g->forks != bfc_cu_forks || g->ended) return NULL;
        if (g->held) bfc_cu_ask(g, "let_go", NULL, device, 0, 0);
        uint64_t known = g->label();
        uint32_t label = known >> 32 == g->labels ? (uint32_t)known : 0;
        if (g->capture) label = g->capture(g->walk, label);     /* may run Python: no lane is chosen before */
        intptr_t stream = bfc_cu_stream(g, device);
        if (PyErr_Occurred()) { PyErr_Clear(); return NULL; }
        bfc_cu_lane *l = bfc_cu_find(g, device, stream);
        if (!l && bfc_cu_ask(g, "more", NULL, device, stream, 0)) l = bfc_cu_find(g, device, stream);
        if (!l) return NULL;
        void *p = l->serve(l->heap, size, label);
        if (p && g->out++ == 0) Py_INCREF(g->owner);
        return p;
    }
    /* NULL where it cannot: whoever called CuPy's allocator finds out why (Desk.recover). */
    static void *bfc_cu_malloc(void *param, size_t size, int device) {
        bfc_cu *g = (bfc_cu *)param;
        PyObject *owner = g->owner;
        Py_INCREF(owner);
        g->inside++;
        void *p = bfc_cu_serve(g, size, device);
        g->inside--;
        Py_DECREF(owner);
        return p;
    }
    static void bfc_cu_back(bfc_cu *g, bfc_cu_lane *l, void *p) {
        if (l->take_back(l->heap, p) != 0) return;
        if (--g->out == 0 && !g->ended) Py_DECREF(g->owner);    /* `g` may be gone */
    }
    /* Comes at any time, in the midst of an error too, and of a collection. */
    static void bfc_cu_free(void *param, void *p, int device) {
        bfc_cu *g = (bfc_cu *)param;
        if (!p || g->ended || g->forks != bfc_cu_forks) return;     /* in a child the books are the parent's */
        PyObject *type, *value, *trace, *owner = g->owner;
        PyErr_Fetch(&type, &value, &trace);
        Py_INCREF(owner);
        g->inside++;
        bfc_cu_lane *l = bfc_cu_owner_of(g, device, p);
        if (l) {
            intptr_t now = bfc_cu_stream(g, device);
            if (PyErr_Occurred()) { PyErr_Clear(); now = ~l->stream; }      /* not known: not its own, then */
            if (now != l->stream && bfc_cu_ask(g, "hold", p, device, l->stream, now)) l = NULL;
        }
        if (l) bfc_cu_back(g, l, p);
        g->inside--;
        Py_DECREF(owner);               /* `g` may be gone */
        PyErr_Restore(type, value, trace);
    }
    static void bfc_cu_give_back(bfc_cu *g, void *p, int device) {
        bfc_cu_lane *l = bfc_cu_owner_of(g, device, p);
        if (l) bfc_cu_back(g, l, p);
    }

    static bfc_cu *bfc_cu_new(
        PyObject *owner, PyObject *desk, size_t stream_of, uint64_t (*label)(void), uint32_t labels, size_t walk,
        size_t capture) {
        static int minds_forks = 0;
        bfc_cu *g = (bfc_cu *)calloc(1, sizeof *g);
        if (!g) return NULL;
        if (!minds_forks) minds_forks = !pthread_atfork(NULL, NULL, bfc_cu_in_child);
        g->owner = owner;
        g->desk = desk;
        g->stream_of = (intptr_t (*)(int))stream_of;
        g->label = label;
        g->walk = (void *)walk;
        g->capture = (uint32_t (*)(void *, uint32_t))capture;
        g->labels = labels;
        g->forks = bfc_cu_forks;
        return g;
    }
    static int bfc_cu_add(bfc_cu *g, const size_t *hooks, PyObject *allocator, int device, intptr_t stream) {
        bfc_cu_lane *l = (bfc_cu_lane *)calloc(1, sizeof *l);
        if (!l) return -1;
        l->device = device;
        l->stream = stream;
        l->heap = (void *)hooks[0];
        l->serve = (void *(*)(void *, size_t, uint32_t))hooks[1];
        l->take_back = (int (*)(void *, void *))hooks[2];
        l->requested = (uint64_t (*)(void *, void *))hooks[3];
        Py_INCREF(allocator);
        l->allocator = allocator;
        l->next = g->lanes;
        g->lanes = l;
        return 0;
    }
    static void bfc_cu_move(bfc_cu *g, int device, intptr_t old, intptr_t stream) {
        bfc_cu_lane *l = bfc_cu_find(g, device, old);
        if (l) l->stream = stream;
    }
    static void bfc_cu_delete(bfc_cu *g) {
        if (!g) return;
        while (g->lanes) {
            bfc_cu_lane *l = g->lanes;
            g->lanes = l->next;
            Py_DECREF(l->allocator);
            free(l);
        }
        free(g);
    }
    static void bfc_cu_end(bfc_cu *g) { if (!g->ended) { g->ended = 1; Py_INCREF(g->owner); } }
    """
    ctypedef struct Gate "bfc_cu":
        int held
        int inside
        u64 out

    Gate *bfc_cu_new(object, object, size_t, u64 (*)(), u32, size_t, size_t)
    int bfc_cu_add(Gate *, const size_t *, object, int, long long)
    void bfc_cu_move(Gate *, int, long long, long long)
    void bfc_cu_delete(Gate *)
    void bfc_cu_end(Gate *)
    void bfc_cu_give_back(Gate *, void *, int)
    void *bfc_cu_malloc(void *, size_t, int)
    void bfc_cu_free(void *, void *, int)
    long long bfc_cu_stream(Gate *, int) except? -1

cdef inline Gate *new(object owner, object desk, size_t stream_of, u32 labels, object walker) except NULL:
    cdef size_t walk = 0
    cdef size_t capture = 0
    if walker is not None:
        walk, capture = walker.hook()
    cdef Gate *made = bfc_cu_new(owner, desk, stream_of, gate.bfc_label_get, labels, walk, capture)
    if made == NULL:
        raise MemoryError()
    return made

cdef inline void delete(Gate *made) noexcept:
    bfc_cu_delete(made)

cdef inline object add(Gate *made, object allocator, int device, long long stream):
    cdef size_t hooks[5]
    hooks[0], hooks[1], hooks[2], hooks[3], hooks[4] = allocator.hooks()
    if bfc_cu_add(made, hooks, allocator, device, stream):
        raise MemoryError()

cdef inline void move(Gate *made, int device, long long old, long long stream) noexcept:
    bfc_cu_move(made, device, old, stream)

# For CFunctionAllocator: `param`, `malloc`, `free`.
cdef inline tuple functions(Gate *made):
    return <size_t>made, <size_t>&bfc_cu_malloc, <size_t>&bfc_cu_free

cdef inline object stream(Gate *made, int device):
    return bfc_cu_stream(made, device)

cdef inline void give_back(Gate *made, size_t pointer, int device) noexcept:
    bfc_cu_give_back(made, <void *>pointer, device)

cdef inline void end(Gate *made) noexcept:
    bfc_cu_end(made)

cdef inline bint is_compiled() noexcept:
    return True
