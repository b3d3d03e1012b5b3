/*
 * The shell of the images. It becomes busybox's, whose messages upstream's specs expect, unless the environment
 * has a variable that no shell could have set, such as "data-1": busybox's shell drops it, bash hands it on.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* odd tells whether the name in "name=value" is none for a shell. */
static int odd(const char *entry)
{
	if (isdigit((unsigned char)*entry))
		return 1;
	for (; *entry && *entry != '='; entry++)
		if (!isalnum((unsigned char)*entry) && *entry != '_')
			return 1;
	return 0;
}

int main(int argc, char **argv, char **env)
{
	const char *shell = "/bin/busybox"; /* which does what its argv[0] says */
	char **e;

	for (e = env; *e; e++)
		if (odd(*e))
			shell = "/bin/bash-static";
	(void)argc;
	execve(shell, argv, env);
	perror(shell);
	return 127;
}
