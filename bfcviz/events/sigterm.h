/* A note that SIGTERM ended the process that writes a log, and of how many events the log had.

   `terminate()` of multiprocessing, `kill` and job schedulers end a process by SIGTERM. Where it has its default action,
   no code of Python runs any more, and a reader could not tell that end from a crash. This handler only writes the note,
   by system calls that a handler may make; the signal's default action then ends the process, with the same status.
   Python's own table of handlers stays as it is. A program that installs a handler replaces this one. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "bfcviz/c/attributes.h"

static char bfc_note_path[4096];
static const uint64_t *bfc_noted_count = 0; /* of the log: events written */
static pid_t bfc_note_owner = 0; /* a forked process inherits the handler, and must not write the note */

BFC_STATIC char *bfc_put_digits(char *stop, uint64_t number) {
    do *--stop = (char)('0' + number % 10);
    while (number /= 10);
    return stop;
}

static void bfc_on_term(int number);

/* Whether this handler is in place, or the default action. A handler with SA_SIGINFO is neither: the kernel keeps both
   kinds in the same field, so the flag need not be looked at, and ThreadSanitizer sets it beside the default. */
BFC_STATIC int bfc_is_term_free(int or_default) {
    struct sigaction now;
    if (sigaction(SIGTERM, 0, &now)) return 0;
    return now.sa_handler == bfc_on_term || (or_default && now.sa_handler == SIG_DFL);
}

BFC_STATIC void bfc_on_term(int number) {
    int error = errno;
    /* SA_RESETHAND has set the default, unless a handler of the program called this one. A log noted since then has set
       this handler again: it is called once more. */
    if (!bfc_is_term_free(1)) return;
    if (getpid() == __atomic_load_n(&bfc_note_owner, __ATOMIC_ACQUIRE)) {
        char text[48], *stop = text + sizeof text, *start = stop;
        *--start = '\n';
        /* Another thread may be writing it: by a plain store of one aligned word, so it is the old or the new one. */
        start = bfc_put_digits(start, __atomic_load_n(bfc_noted_count, __ATOMIC_RELAXED));
        *--start = ' ';
        start = bfc_put_digits(start, (uint64_t)number);
        int fd = open(bfc_note_path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            if (write(fd, start, (size_t)(stop - start)) < 0) errno = 0;
            close(fd);
        }
    }
    raise(number); /* the default action, when this returns */
    errno = error;
}

/* Note SIGTERM in a new file from now on; 0 where the program handles or ignores the signal. */
BFC_STATIC int bfc_note_term(const char *path, const uint64_t *count) {
    struct sigaction ours;
    if (getpid() == 1)
        return 0; /* the first process of a container goes on after a signal without a handler */
    if (strlen(path) >= sizeof bfc_note_path || !bfc_is_term_free(1)) return 0;
    __atomic_store_n(&bfc_note_owner, 0, __ATOMIC_RELEASE);
    strcpy(bfc_note_path, path);
    bfc_noted_count = count;
    __atomic_store_n(&bfc_note_owner, getpid(), __ATOMIC_RELEASE);
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = bfc_on_term;
    ours.sa_flags = (int)SA_RESETHAND | SA_ONSTACK | SA_RESTART;
    return !sigaction(SIGTERM, &ours, 0);
}

/* Before the log with this count is freed: note nothing of it any more. A note of another log stays. */
BFC_STATIC void bfc_forget_term(const uint64_t *count) {
    struct sigaction plain;
    if (count != bfc_noted_count) return;
    __atomic_store_n(&bfc_note_owner, 0, __ATOMIC_RELEASE);
    if (!bfc_is_term_free(0)) return;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(SIGTERM, &plain, 0);
}

/* A field as it is in a struct, of which Cython only passes the value. */
#define bfc_note_term_of(path, field) bfc_note_term((path), &(field))
#define bfc_forget_term_of(field) bfc_forget_term(&(field))
