# commit.t - the version fence: state event -> state, actions.
#
# Two engines, all of them needed; or, as the first line of a story, `machine`
# with engines and min; the last `in-place` of them are, and load `groups` at a
# time (0: all); reloadA-B are the engines of a wave.  e: engine (0).  `until STATE` goes straight on to
# that state, every engine answering.  `fail` is bad data, or with signal=2
# what Ctrl-C asks for.  `resumed`, `decided`: a restarted commit whose run
# has touched its engines, or decided.  verdict:N is the exit code of all
# four stages; excludeN the engine that is left out.

story published
plan    plan             -> lock lock
lock    locked           -> recover recover
recover recovered        -> probe probe
probe   probed           -> probe
probe   probed e=1       -> open open
open    opened           -> begin begin
begin   begun e=1        -> begin
begin   begun            -> load opened
load    drained          -> receipt ask
receipt receipt          -> receipt
receipt receipt e=1      -> decide decide
decide  agreed           -> swap swap
swap    home e=1         -> swap
swap    home             -> done verdict:0

story nothing before the plan (I11)
plan    locked           -> plan refused
plan    drained          -> plan refused
plan    fail             -> done abort verdict:65

story I1 no decision before all receipts
plan    until load       -> load
load    receipt          -> load refused
load    agreed           -> load refused
load    drained          -> receipt ask
receipt agreed           -> receipt refused
receipt receipt          -> receipt
receipt agreed           -> receipt refused

story I2 no swap before the decision
plan    until decide     -> decide
decide  receipt          -> decide refused
decide  lost             -> decide refused
decide  agreed           -> swap swap

story UX-06 a second signal after the decision: who is not home lags
plan    until decide     -> decide
decide  agreed           -> swap swap
swap    home e=1         -> swap
swap    leave            -> done verdict:3
done    leave            -> done refused

story ... before the lock, restarted
plan    decided          -> plan
plan    plan             -> lock lock
lock    leave            -> done verdict:3

story ... in its own recovery
plan    decided          -> plan
plan    plan             -> lock lock
lock    locked           -> recover recover
recover leave            -> done verdict:3

story UX-06 a second signal before the decision: who is not home needs attention
plan    until load       -> load
load    fail signal=2    -> abort abort cancel
abort   home e=1         -> abort
abort   leave            -> done verdict:2

# Refused while no engine is touched:

story the lock is not to be had
plan    until lock       -> lock
lock    fail             -> done abort verdict:65

story recovery of an older run fails
plan    until recover    -> recover
recover fail             -> done abort verdict:65

story an engine cannot take part
plan    until probe      -> probe
probe   probed           -> probe
probe   lost e=1         -> done abort verdict:65

story a signal while engines are asked
plan    until probe      -> probe
probe   fail signal=2    -> done abort verdict:130

story an engine is lost before open is durable
plan    until open       -> open
open    lost e=1         -> done abort verdict:65

story open cannot be written
plan    until open       -> open
open    fail             -> done abort verdict:65

# After that, the way back:

story an engine is lost at begin
plan    until begin      -> begin
begin   begun            -> begin
begin   lost e=1         -> abort abort cancel
abort   begun e=1        -> abort
abort   home             -> abort
abort   home e=1         -> done verdict:1

story the run fails at begin
plan    until begin      -> begin
begin   fail             -> abort abort cancel

story VF-01 a failed bucket aborts
plan    until load       -> load
load    lost             -> abort abort cancel
abort   drained          -> abort
abort   receipt          -> abort
abort   probed           -> abort
abort   lost e=1         -> abort
abort   home e=1         -> abort
abort   home             -> done verdict:1

story FL-05 an abort that does not arrive
plan    until load       -> load
load    fail             -> abort abort cancel
abort   fail             -> abort
abort   away e=1         -> abort
abort   home             -> done verdict:2

story ... arrives nowhere
plan    until load       -> load
load    fail             -> abort abort cancel
abort   home             -> abort
abort   away e=1         -> done verdict:2

story a signal in place of 1
plan    until load       -> load
load    fail signal=2    -> abort abort cancel
abort   home e=1         -> abort
abort   home             -> done verdict:130

story 2 outranks a signal
plan    until load       -> load
load    fail signal=2    -> abort abort cancel
abort   away e=1         -> abort
abort   home             -> done verdict:2

story the first cause counts
plan    until load       -> load
load    lost             -> abort abort cancel
abort   fail signal=2    -> abort
abort   home             -> abort
abort   home e=1         -> done verdict:1

story a receipt is missing
plan    until receipt    -> receipt
receipt receipt          -> receipt
receipt lost e=1         -> abort abort cancel

story the receipts do not agree
plan    until receipt    -> receipt
receipt receipt          -> receipt
receipt fail             -> abort abort cancel

story failed before the link
plan    until decide     -> decide
decide  fail             -> abort abort cancel
abort   home             -> abort
abort   home e=1         -> done verdict:1

story link called, then failed: neither abort nor decision
plan    until decide     -> decide
decide  unknown          -> done abort verdict:75

# After the decision only forward:

story after the decision only forward
plan    until swap       -> swap
swap    fail signal=2    -> swap
swap    lost             -> swap
swap    drained          -> swap
swap    fail             -> swap
swap    home             -> swap
swap    home e=1         -> done verdict:0

story VF-04 FL-05 an engine lags
plan    until swap       -> swap
swap    away e=1         -> swap
swap    home             -> done verdict:3

story ... the last one
plan    until swap       -> swap
swap    home             -> swap
swap    away e=1         -> done verdict:3

story over is over
plan    until swap       -> swap
swap    home             -> swap
swap    home e=1         -> done verdict:0
done    fail signal=2    -> done
done    lost             -> done
done    drained          -> done
done    probed           -> done
done    home             -> done refused

# A decided number again:

story VF-06 a decided number, equal content
plan    until open       -> open
open    same             -> hash opened
hash    drained          -> done verdict:0

story ... which an engine does not serve
plan    until open       -> open
open    same             -> hash opened
hash    lost             -> hash
hash    away e=1         -> hash
hash    drained          -> done verdict:3

story ... with other content
plan    until open       -> open
open    same             -> hash opened
hash    fail             -> done abort verdict:65

# A restarted commit:

story restarted behind the decision
plan    decided          -> plan
plan    until recover    -> recover
recover ahead            -> swap swap
swap    home             -> swap
swap    home e=1         -> done verdict:0

story I12 decided, and brought home by another commit
plan    over             -> done verdict:0

story ... but for one
plan    away e=1         -> plan
plan    over             -> done verdict:3

story ... while this one waited for the lock
plan    until recover    -> recover
recover away             -> recover
recover over             -> done verdict:3

story decided, and the registry cannot be had again
plan    decided          -> plan
plan    until lock       -> lock
lock    fail             -> done verdict:3

story decided, and recovery fails
plan    decided          -> plan
plan    until recover    -> recover
recover fail             -> done verdict:3

story touched, and the registry cannot be had again
plan    resumed          -> plan
plan    until lock       -> lock
lock    fail signal=2    -> done abort verdict:2

story touched, and recovery fails
plan    resumed          -> plan
plan    until recover    -> recover
recover fail             -> abort abort cancel
abort   home             -> abort
abort   home e=1         -> done verdict:1

story FL-01 touched: another boot aborts, and cancels
plan    resumed          -> plan
plan    until probe      -> probe
probe   probed           -> probe
probe   lost e=1         -> abort abort cancel
abort   home             -> abort
abort   away e=1         -> done verdict:2

story touched, and probing fails
plan    resumed          -> plan
plan    until probe      -> probe
probe   fail             -> abort abort cancel

story touched, and an engine is lost before open
plan    resumed          -> plan
plan    until open       -> open
open    lost             -> abort abort cancel

story touched, and open cannot be written again
plan    resumed          -> plan
plan    until open       -> open
open    fail             -> abort abort cancel

# --min-engines:

story FL-01 one is dead at the probe
plan    machine min=1    -> plan
plan    until probe      -> probe
probe   lost             -> probe exclude0
probe   probed           -> probe
probe   lost             -> probe
probe   home             -> probe
probe   probed e=1       -> open open
open    opened           -> begin begin
begin   begun e=1        -> load opened
load    drained          -> receipt ask
receipt receipt e=1      -> decide decide
decide  agreed           -> swap swap
swap    home e=1         -> done verdict:3

story the last to be asked is the dead one
plan    machine min=1    -> plan
plan    until probe      -> probe
probe   probed           -> probe
probe   lost e=1         -> open exclude1 open
open    lost e=1         -> open
open    home e=1         -> open

story one is lost before open is durable
plan    machine min=1    -> plan
plan    until open       -> open
open    lost             -> open exclude0
open    away             -> open
open    opened           -> begin begin

story one of three is lost at begin
plan    machine engines=3 min=2 -> plan
plan    until begin      -> begin
begin   lost             -> begin exclude0
begin   lost             -> begin
begin   begun            -> begin
begin   home             -> begin
begin   begun e=1        -> begin
begin   begun e=2        -> load opened

story the last one missing at begin
plan    machine min=1    -> plan
plan    until begin      -> begin
begin   begun            -> begin
begin   lost e=1         -> load exclude1 opened
load    home e=1         -> load
load    until swap       -> swap
swap    home             -> done verdict:3

story excluded while it loads, brought back beside the run
plan    machine min=1    -> plan
plan    until load       -> load
load    lost e=1         -> load exclude1
load    lost e=1         -> load
load    probed           -> load
load    home e=1         -> load
load    drained          -> receipt ask
receipt receipt e=1      -> receipt
receipt lost e=1         -> receipt
receipt probed           -> receipt
receipt drained          -> receipt
receipt receipt          -> decide decide
decide  agreed           -> swap swap
swap    home             -> done verdict:3

story one of three gives no receipt
plan    machine engines=3 min=2 -> plan
plan    until receipt    -> receipt
receipt lost             -> receipt exclude0
receipt away             -> receipt
receipt receipt e=1      -> receipt
receipt receipt e=2      -> decide decide

story the last receipt is missing
plan    machine min=1    -> plan
plan    until receipt    -> receipt
receipt receipt          -> receipt
receipt lost e=1         -> decide exclude1 decide
decide  home e=1         -> decide
decide  agreed           -> swap swap
swap    home             -> done verdict:3

story its cancel outlasts the decision
plan    machine min=1    -> plan
plan    until load       -> load
load    lost e=1         -> load exclude1
load    drained          -> receipt ask
receipt receipt          -> decide decide
decide  agreed           -> swap swap
swap    home             -> swap
swap    away e=1         -> done verdict:3

story FL-04 below the minimum: abort
plan    machine min=1    -> plan
plan    until load       -> load
load    lost e=1         -> load exclude1
load    home e=1         -> load
load    lost             -> abort abort cancel
abort   home             -> done verdict:1

# It could not be brought back:

story an excluded one is away, wherever the run is
plan    machine min=1    -> plan
plan    until probe      -> probe
probe   lost             -> probe exclude0
probe   away             -> probe

story ... at begin
plan    machine engines=3 min=2 -> plan
plan    until begin      -> begin
begin   lost             -> begin exclude0
begin   away             -> begin

story ... while it loads
plan    machine min=1    -> plan
plan    until load       -> load
load    lost             -> load exclude0
load    away             -> load

story ... home while receipts come, away at the decision
plan    machine engines=3 min=1 -> plan
plan    until receipt    -> receipt
receipt lost             -> receipt exclude0
receipt home             -> receipt
receipt receipt e=1      -> receipt
receipt lost e=2         -> decide exclude2 decide
decide  away e=2         -> decide

# A published version again:

story no engine keeps it: found before any is begun
plan    until open       -> open
open    seek             -> seek seek
seek    found            -> open open
open    opened           -> begin begin

story it is nowhere
plan    until open       -> open
open    seek             -> seek seek
seek    fail             -> done abort verdict:65

story an engine is lost while it is sought
plan    machine min=1    -> plan
plan    until open       -> open
open    seek             -> seek seek
seek    lost             -> seek exclude0
seek    lost             -> seek
seek    lost e=1         -> done abort verdict:65

# A join:

story one of two is there already
plan    until probe      -> probe
probe   there            -> probe
probe   there            -> probe
probe   probed e=1       -> open open
open    opened           -> begin begin
begin   begun e=1        -> load opened
load    drained          -> receipt ask
receipt receipt e=1      -> decide decide
decide  agreed           -> swap swap
swap    home e=1         -> done verdict:0

story ... and says so last
plan    until probe      -> probe
probe   probed           -> probe
probe   there e=1        -> open open

story all are there: nothing is touched
plan    until probe      -> probe
probe   there e=1        -> probe
probe   there            -> done verdict:0

story restarted behind the last swap
plan    resumed          -> plan
plan    until probe      -> probe
probe   there            -> probe
probe   there e=1        -> swap swap
swap    home             -> swap
swap    home e=1         -> done verdict:0

story each joins by itself
plan    machine engines=3 min=1 -> plan
plan    until probe      -> probe
probe   there            -> probe
probe   probed e=1       -> probe
probe   probed e=2       -> open open
open    opened           -> begin begin
begin   begun e=1        -> begin
begin   lost e=2         -> load exclude2 opened
load    until swap       -> swap
swap    home e=2         -> swap
swap    home e=1         -> done verdict:3

# In-place engines: one barrier, then waves.

story FL-11 I3 I6 all pause, then load two at a time, staged ones first
plan    machine engines=6 in-place=5 groups=2 -> plan
plan    until receipt    -> receipt
receipt receipt          -> receipt
receipt receipt e=1      -> receipt
receipt receipt e=2      -> receipt
receipt receipt e=3      -> receipt
receipt receipt e=4      -> receipt
receipt receipt e=5      -> hold hold
hold    agreed           -> hold refused
hold    loaded e=1       -> hold refused
hold    drained          -> hold
hold    held e=5         -> hold
hold    held e=1         -> hold
hold    held e=2         -> hold
hold    held e=3         -> hold
hold    held e=4         -> reload reload1-2
reload  agreed           -> reload refused
reload  drained          -> reload
reload  loaded e=2       -> reload
reload  loaded e=1       -> reload reload3-4
reload  loaded e=3       -> reload
reload  loaded e=4       -> reload reload5-5
reload  loaded e=5       -> decide decide
decide  agreed           -> swap swap

story all at once
plan    machine engines=2 in-place=2 -> plan
plan    until hold       -> hold
hold    held             -> hold
hold    held e=1         -> reload reload0-1
reload  loaded e=1       -> reload
reload  loaded           -> decide decide

story FL-05 VF-04 one does not pause: all are brought back
plan    machine engines=3 in-place=2 -> plan
plan    until hold       -> hold
hold    held e=1         -> hold
hold    lost e=2         -> abort abort cancel
abort   held e=2         -> abort
abort   home e=1         -> abort
abort   home             -> abort
abort   home e=2         -> done verdict:1

story a signal at the barrier
plan    machine engines=2 in-place=2 -> plan
plan    until hold       -> hold
hold    fail signal=2    -> abort abort cancel

story FL-09 after a failure no wave begins
plan    machine engines=4 in-place=4 groups=1 -> plan
plan    until hold       -> hold
hold    held             -> hold
hold    held e=1         -> hold
hold    held e=2         -> hold
hold    held e=3         -> reload reload0-0
reload  loaded           -> reload reload1-1
reload  lost e=1         -> abort abort cancel
abort   loaded e=1       -> abort

story the run fails while they load
plan    machine engines=2 in-place=2 -> plan
plan    until reload     -> reload
reload  fail             -> abort abort cancel

story --min-engines: the last store is lost, the others pause
plan    machine engines=3 min=1 in-place=2 -> plan
plan    until receipt    -> receipt
receipt receipt          -> receipt
receipt receipt e=1      -> receipt
receipt lost e=2         -> hold exclude2 hold
hold    held e=1         -> reload reload1-2

story ... one does not pause
plan    machine engines=4 min=1 in-place=3 groups=1 -> plan
plan    until hold       -> hold
hold    lost e=1         -> hold exclude1
hold    held e=1         -> hold
hold    lost e=1         -> hold
hold    home e=1         -> hold
hold    held e=2         -> hold
hold    lost e=3         -> reload exclude3 reload2-2
reload  away e=3         -> reload
reload  home e=1         -> reload
reload  loaded e=3       -> reload
reload  lost e=3         -> reload
reload  loaded e=2       -> decide decide

story ... none of them pauses: what is staged is decided
plan    machine engines=2 min=1 in-place=1 -> plan
plan    until hold       -> hold
hold    away e=1         -> hold
hold    lost e=1         -> decide exclude1 decide

story ... one does not load: no wave is refilled
plan    machine engines=5 min=1 in-place=5 groups=2 -> plan
plan    until reload     -> reload
reload  lost             -> reload exclude0
reload  loaded e=1       -> reload reload2-3
reload  loaded e=2       -> reload
reload  lost e=3         -> reload exclude3 reload4-4
reload  lost e=4         -> decide exclude4 decide
