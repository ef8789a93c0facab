/* main.c - the process: signals, streams, dispatch to a subcommand, the one error line, the exit code.
 *
 * With cli.c the only place that prints of its own accord, exits or reads the environment. Everything a subcommand does
 * is in the file of its name.
 * Easy to get wrong: a signal that was ignored at the start (nohup) stays ignored; the second signal exits at once, after
 * removing the temporary file in flight. */
#include "cli.h"
#include "compare.h"
#include "core/file.h"
#include "generate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int interrupted; /* lint: allow-static (a signal handler can reach nothing else) */

static void on_signal(int number) {
    (void)number;
    if (interrupted) {
        file_remove_partial();
        _exit(ERR_INTERRUPTED);
    }
    interrupted = 1;
}

static void catch_signals(void) {
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        struct sigaction old, new = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&new.sa_mask);
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &new, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a write error with a text */
}

/* A program started with a closed stream would get its output file as descriptor 0, 1 or 2 and print into it. */
static void keep_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) _exit(ERR_IO);
}

static Status compare(const Cli *cli, Error *e) {
    CompareLimits limits = {.has_min_psnr = cli->min_psnr >= 0,
                            .min_psnr = cli->min_psnr,
                            .has_max_abs = cli->max_abs >= 0,
                            .max_abs = cli->max_abs};
    Comparison found;
    return compare_files(cli->args[0], cli->args[1], &limits, stdout, &found, e);
}

static Status dispatch(const Cli *cli, Error *e) {
    switch (cli->command) {
    case COMMAND_GENERATE:
        catch_signals(); /* the others run with the system's defaults: they keep no partial file */
        return generate_run(cli, cli->model, stdout, stderr, isatty(2) != 0, &interrupted, e);
    case COMMAND_COMPARE: return compare(cli, e);
    case COMMAND_INSPECT:
    case COMMAND_TOKENS:
    case COMMAND_COUNT: break;
    }
    return fail(e, ERR_USAGE, "ditto %s is not part of this build", cli_command_name(cli->command));
}

int main(int argc, char **argv) {
    keep_streams();
    Error e = {0};
    Cli cli;
    Status status = cli_parse(argc, argv, &cli, &e);
    if (status == OK) {
        if (cli.version)
            printf("ditto %s\n", CLI_VERSION);
        else if (cli.help_all)
            cli_help_all(stdout);
        else if (cli.help)
            cli_help(cli.command, stdout);
        else
            status = dispatch(&cli, &e);
    }
    cli_free(&cli);
    if ((fflush(stdout) || ferror(stdout)) && status == OK)
        status = fail(&e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
    if (status != OK && e.text[0]) fprintf(stderr, "ditto: %s\n", e.text);
    return status;
}
