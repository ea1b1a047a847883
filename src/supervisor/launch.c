#define _GNU_SOURCE
#include "supervisor/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* In the child: what it inherits is to be as if no supervisor were there. */
static void become(char *const argv[], pid_t parent, const int out[2], const int err[2], int trouble)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* with which it ends its ranks, here and elsewhere, and cleans up */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO); /* nobody may read from a terminal in the background */
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (getppid() == parent) execvp(argv[0], argv);
    int error = errno;
    (void)!write(trouble, &error, sizeof error);
    _exit(127);
}

static void close_both(int pipe[2])
{
    for (int i = 0; i < 2; i++)
        if (pipe[i] >= 0) close(pipe[i]);
}

/* Waits until the program runs, or says why it does not. */
static int hear_of_trouble(int trouble, const char *program)
{
    int error;
    ssize_t n;
    do n = read(trouble, &error, sizeof error);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof error) return TR_OK;
    return tr_fail(TR_ERR_NO_INPUT, "%s cannot be started: %s", program, strerror(error));
}

int tr_launch_start(char *const argv[], struct tr_launch *launch)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, trouble[2] = {-1, -1};
    *launch = (struct tr_launch){.out = {.from = -1}, .err = {.from = -1}};
    pid_t parent = getpid(), child = -1;
    if (pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0 && pipe2(trouble, O_CLOEXEC) == 0)
        child = fork();
    if (child < 0) {
        int status = tr_fail(TR_ERR_SYSTEM, "%s cannot be started: %s", argv[0], strerror(errno));
        close_both(out);
        close_both(err);
        close_both(trouble);
        return status;
    }
    if (child == 0) become(argv, parent, out, err, trouble[1]);
    setpgid(child, child); /* here as well: who comes first is not known */
    close(out[1]);
    close(err[1]);
    close(trouble[1]);
    int status = hear_of_trouble(trouble[0], argv[0]);
    close(trouble[0]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    launch->pid = child;
    launch->out = (struct tr_relay){.from = out[0], .to = STDOUT_FILENO};
    launch->err = (struct tr_relay){.from = err[0], .to = STDERR_FILENO};
    if (status == TR_OK) return TR_OK;
    waitpid(child, &launch->wait_status, 0);
    launch->ended = true;
    tr_launch_close(launch);
    return status;
}

bool tr_launch_is_over(struct tr_launch *launch)
{
    if (launch->ended) return true;
    launch->ended = waitpid(launch->pid, &launch->wait_status, WNOHANG) == launch->pid;
    return launch->ended;
}

void tr_launch_signal(const struct tr_launch *launch, int number, bool all)
{
    if (!launch->ended) kill(all ? -launch->pid : launch->pid, number);
}

static void finish(struct tr_relay *relay)
{
    do {
        tr_relay_give(relay);
        if (tr_relay_holds(relay)) tr_sleep(0.01);
        else tr_relay_take(relay);
    } while (tr_relay_holds(relay) || relay->taken > 0);
    tr_relay_give(relay);
    if (relay->from < 0) return;
    tr_relay_pass(relay, NULL, 0); /* a stranger holds the other end */
    close(relay->from);
    relay->from = -1;
}

void tr_launch_close(struct tr_launch *launch)
{
    finish(&launch->out);
    finish(&launch->err);
}
