#include "mutant.h"

#include "sim.h"

#include <string.h>

static const struct {
	const char *name, *text;
} mutants[] = {
	{ "none", "" },
};

int mutant_count(void)
{
	return (int)COUNT(mutants) - 1;
}

const char *mutant_name(int i)
{
	return mutants[i].name;
}

const char *mutant_text(int i)
{
	return mutants[i].text;
}

int mutant_number(const char *name)
{
	for (int i = 1; i <= mutant_count(); i++)
		if (strcmp(mutants[i].name, name) == 0)
			return i;
	return 0;
}
