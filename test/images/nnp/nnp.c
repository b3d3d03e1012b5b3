/* Says as whom it runs: in a set-uid file, not as the caller, unless new privileges are forbidden. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("Effective uid: %d\n", (int)geteuid());
	return 0;
}
