/* Windows of a file that another process may truncate.

   A write behind the end of a mapped file raises SIGBUS, which would end the user's program. A system
   call per record costs several times the write itself, and a check of the file's size before each
   write leaves a race. So a signal handler is installed while a window of a file is mapped. It handles
   only addresses in such a window: it replaces the lost pages by anonymous memory, and records that. It
   forwards all other signals to the previous handler. */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bfcviz/c/attributes.h"

/* A guarded window. */
typedef struct bfc_guard {
    struct bfc_guard *next; /* never freed: the handler may use it */
    uintptr_t start, stop;  /* stop 0: unused */
    int used;
    int cut; /* whether pages were replaced */
} bfc_guard;

static bfc_guard *bfc_guards = 0;
static int bfc_guarded = 0; /* windows */
static struct sigaction bfc_before;
BFC_THREAD int bfc_in_handler = 0;

BFC_STATIC void bfc_on_bus(int number, siginfo_t *info, void *context);

BFC_STATIC int bfc_is_installed(void) {
    struct sigaction now;
    return !sigaction(SIGBUS, 0, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == bfc_on_bus;
}

BFC_STATIC void bfc_by_default(void) {
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &plain, 0);
}

BFC_STATIC int bfc_replace_lost(uintptr_t at) {
    for (bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST); g; g = g->next) {
        uintptr_t stop = __atomic_load_n(&g->stop, __ATOMIC_SEQ_CST);
        uintptr_t start = __atomic_load_n(&g->start, __ATOMIC_SEQ_CST);
        if (at < start || at >= stop || stop != __atomic_load_n(&g->stop, __ATOMIC_SEQ_CST)) continue;
        uintptr_t page = at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap((void *)page, stop - page, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return 0;
        __atomic_store_n(&g->cut, 1, __ATOMIC_SEQ_CST);
        return 1;
    }
    return 0;
}

BFC_STATIC void bfc_on_bus(int number, siginfo_t *info, void *context) {
    int error = errno, is_fault = info->si_code > 0;
    if (is_fault && bfc_replace_lost((uintptr_t)info->si_addr)) {
        errno = error;
        return;
    }
    struct sigaction before = bfc_before;
    int is_function = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
    if (!is_function || bfc_in_handler) { /* the previous handler may have called us */
        if (before.sa_handler == SIG_IGN && !is_fault) return;
        bfc_by_default();
        if (!is_fault) raise(number); /* delivered when this returns; a fault occurs again */
        return;
    }
    bfc_in_handler = 1;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
    bfc_in_handler = 0;
    sigset_t pending; /* faulthandler raises the signal again for its previous handler: that must not be us */
    if (!sigpending(&pending) && sigismember(&pending, number) && bfc_is_installed()) bfc_by_default();
    errno = error;
}

/* Another handler may have been installed later (faulthandler.enable), so each new window checks this. */
BFC_STATIC void bfc_install(void) {
    struct sigaction ours;
    if (bfc_is_installed()) return;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = bfc_on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, 0, &bfc_before);
    sigaction(SIGBUS, &ours, 0);
}

BFC_STATIC bfc_guard *bfc_guard_of(const void *window) {
    for (bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST); g && window; g = g->next)
        if (g->stop && g->start == (uintptr_t)window) return g;
    return 0;
}

BFC_STATIC void bfc_guard_window(void *window, uint64_t bytes) {
    bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST);
    while (g && __atomic_exchange_n(&g->used, 1, __ATOMIC_SEQ_CST)) g = g->next;
    if (!g) {
        g = (bfc_guard *)calloc(1, sizeof *g);
        if (!g) return;
        g->used = 1;
        g->next = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(&bfc_guards, &g->next, g, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            continue;
    }
    g->cut = 0;
    __atomic_store_n(&g->start, (uintptr_t)window, __ATOMIC_SEQ_CST);
    __atomic_store_n(&g->stop, (uintptr_t)window + bytes, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&bfc_guarded, 1, __ATOMIC_SEQ_CST);
    bfc_install();
}

BFC_STATIC void bfc_leave_window(void *window) {
    bfc_guard *g = bfc_guard_of(window);
    if (!g) return;
    __atomic_store_n(&g->stop, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&g->used, 0, __ATOMIC_SEQ_CST);
    if (!__atomic_sub_fetch(&bfc_guarded, 1, __ATOMIC_SEQ_CST) && bfc_is_installed())
        sigaction(SIGBUS, &bfc_before, 0);
}

/* Whether a record of the window was lost because the file was truncated. */
BFC_STATIC int bfc_is_cut(const void *window) {
    bfc_guard *g = bfc_guard_of(window);
    return g && __atomic_load_n(&g->cut, __ATOMIC_SEQ_CST);
}
