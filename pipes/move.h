/*
 * move.h - weir-move-nccl and weir-move-ipc: the process that has the device
 * and the libraries.
 *
 * Beside weir-transfer it is rank 0 of every group and reads the source's
 * files; beside an engine it is another rank and writes the slot's files.
 * It is told what to do over a socket pair (fdpass.h), by the messages of
 * msg.def, and knows no run, no engine and no fence: whoever started it does.
 *
 *	<- enroll		its device, by number; -> enrolled: device and
 *				library
 *	<- attach		descriptors of files, by number; no reply
 *	<- join			-> grouped (rank 0: the id), joined (waiting),
 *				joined (formed: probe bytes have flowed)
 *				(a foreign group's others are no movers:
 *				it is formed when its communicator stands,
 *				and has summed a float if they begin so)
 *	<- offer		-> launched (rank 0: read, broadcast begun),
 *				ack (rank 0: its memory may be used again;
 *				others: written to the files)
 *	<- taken		(ipc, rank 0) all of the group have copied it
 *	<- leave		the group's offers end without a reply
 *	<- rest			-> rested: the run is over (nccl)
 *
 * or refused, for any of them.  Offers of one group happen in the order in
 * which they come.  An offer without pieces is received and dropped.
 *
 * The way of a bucket: file <-> pinned ring (MOVE_RING chunks, all together no
 * larger than the largest bucket) <-> staging on the device (two buckets at
 * most, contiguous: one broadcast each), all of it asynchronous; a chunk or a
 * staging buffer is used again only when the device says that it has finished
 * with it (I7).  Rank 0 reads a bucket once for all groups that it goes to in
 * one wave.
 *
 * weir-move-ipc has no broadcast: the id of a group are the CUDA IPC handles of
 * rank 0's staging buffers, one export each, which the others map when they
 * join and unmap when they leave.  A bucket is launched when the device has all
 * of it, the others copy it from there, and their acks come after their device
 * has finished; rank 0 uses that buffer again once it is told `taken`.
 *
 * A mover may outlive a run.  Once nothing is on its way and no group has
 * failed it can be told to rest: it lets go of all files, keeps the groups that
 * the run used, and tells of them when it is asked to enroll again.  Such a
 * group is joined by its token, without an id, and is proved like a new one:
 * by bytes that no rank has had before.  What a run does not join ends with it;
 * all of them end when a run needs room for larger buckets.
 *
 * What the device or the runtime fails with ends the process; what a group
 * fails with ends the group.  The end of the socket ends the process, and so
 * does a call of a library that outlives its watchdog (watchdog.h): the start
 * of a group by the group's own deadline, its end by MOVE_END_MS.
 */
#ifndef WEIR_MOVE_H
#define WEIR_MOVE_H

#define MOVE_CHUNK	((size_t)8 << 20)	/* bytes, at the most */
#define MOVE_RING	4			/* chunks of pinned memory */
#define MOVE_STAGING	2			/* buckets on the device */
#define MOVE_PROBE	((size_t)1 << 20)	/* bytes, in a new group */
#define MOVE_FILES_MAX	65536u
#define MOVE_GROUPS_MAX	4096u			/* that have not been let go of */
#define MOVE_CASTS_MAX	65536u			/* offers not ended */
#define MOVE_LOOK_MS	100	/* between two looks at groups in use */
#define MOVE_FORM_MS	5	/* between two looks at one that forms */
#define MOVE_END_MS	2000	/* for the library to let go of a group */
#define MOVE_CALL_MS	60000	/* for any other call of a library */

struct move_wire;
extern const struct move_wire move_wire_nccl, move_wire_ipc;

/* The whole program, `NAME FD` or `NAME check DEVICE`: its exit code. */
int move_main(const char *name, const struct move_wire *wire, int argc,
	      char **argv);

#endif
