/* The process that holds a pod's namespaces: it does nothing, reaps what is handed to it, and ends
 * when asked to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig) { _exit(sig == SIGINT || sig == SIGTERM ? 0 : 1); }

static void reap(int sig) {
	(void)sig;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

int main(void) {
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}
