/* What is pushed: checkpoints of one or more shards of small tensors. */
#include "story.h"

#include <string.h>

static uint64_t put_header(char *out, const char *json)
{
	uint64_t n = strlen(json);

	while (n % 8)
		n++;
	memcpy(out, &n, 8);
	memset(out + 8, ' ', n);
	memcpy(out + 8, json, strlen(json));
	return 8 + n;
}

/* One shard of 2 to 6 tensors: every push has other bytes in them. */
static void put_shard(const char *path, uint32_t shard, uint32_t tensors,
		      struct rng *r)
{
	char json[1024], out[4096];
	size_t at = 0, start = 0, data;

	at += (size_t)snprintf(json, sizeof json, "{");
	for (uint32_t i = 0; i < tensors; i++) {
		size_t n = 8 * (1 + (shard + 3 * i) % 5);

		at += (size_t)snprintf(json + at, sizeof json - at,
				       "%s\"s%u.t%u\":{\"dtype\":\"U8\","
				       "\"shape\":[%zu],"
				       "\"data_offsets\":[%zu,%zu]}",
				       i ? "," : "", shard, i, n, start,
				       start + n);
		start += n;
	}
	snprintf(json + at, sizeof json - at, "}");
	data = put_header(out, json);
	for (size_t i = 0; i < start; i++)
		out[data + i] = (char)rng_next(r);
	disk_put(path, out, data + start);
}

static void put_index(uint32_t push, uint32_t shards, uint32_t tensors)
{
	char json[2048], path[64];
	int n = snprintf(json, sizeof json, "{\"weight_map\":{");

	for (uint32_t i = 0; i < shards * tensors; i++)
		n += snprintf(json + n, sizeof json - (size_t)n,
			      "%s\"s%u.t%u\":\"m%u.safetensors\"", i ? "," : "",
			      i / tensors, i % tensors, i / tensors);
	n += snprintf(json + n, sizeof json - (size_t)n, "}}");
	snprintf(path, sizeof path, "/src/%u/model.safetensors.index.json",
		 push);
	disk_put(path, json, (size_t)n);
}

void story_make_source(uint32_t push, uint32_t shards, uint32_t tensors,
		       struct rng *r)
{
	char path[64];
	static const char config[] = "{\"model_type\":\"sim\"}\n";

	snprintf(path, sizeof path, "/src/%u", push);
	disk_mkdirs(path);
	for (uint32_t i = 0; i < shards; i++) {
		snprintf(path, sizeof path, "/src/%u/m%u.safetensors", push, i);
		put_shard(path, i, tensors, r);
	}
	if (shards > 1)
		put_index(push, shards, tensors);
	snprintf(path, sizeof path, "/src/%u/config.json", push);
	disk_put(path, config, sizeof config - 1);
}

struct node *world_source(uint32_t source)
{
	char path[32];

	snprintf(path, sizeof path, "/src/%u", source);
	return disk_find(disk_root(), path, true);
}
