/* A library's handler of SIGTERM, which calls the one that was there before as a function, as many do. */
#include <signal.h>

static struct sigaction before;
static int calls = 0;

static void on_term(int number) {
    if (++calls < 10 && before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
}

void install(void) {
    struct sigaction ours = {0};
    ours.sa_handler = on_term;
    sigaction(SIGTERM, &ours, &before);
}

/* The default action, with a flag that does not matter to it, as ThreadSanitizer leaves it. */
void set_default(void) {
    struct sigaction plain = {0};
    plain.sa_flags = SA_SIGINFO;
    sigaction(SIGTERM, &plain, 0);
}

int called(void) {
    return calls;
}
