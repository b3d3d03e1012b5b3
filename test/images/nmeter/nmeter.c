/* Prints the time with milliseconds, which is all that upstream's specs ask of the command of this name: Debian's busybox
 * has none. */
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

int main(void)
{
	struct timeval now;
	struct tm t;
	gettimeofday(&now, NULL);
	gmtime_r(&now.tv_sec, &t);
	printf("%02d:%02d:%02d.%03d\n", t.tm_hour, t.tm_min, t.tm_sec, (int)(now.tv_usec / 1000));
	return 0;
}
