# admit.t - state event -> state, actions (share/doc/internals.md, 6).
#
# Six buckets of 1536 bytes.  First line of a story: `machine` with engines
# (2), staged (all), groups (1), buckets (2), bytes (0), order (0 wave, 1
# window), exclusive (none): the number of an exclusive bucket.
# gW.B: grant of bucket B to wave W; rB: its credit is back.

story no grant before opened and holds, none after abort
wait machine               -> wait
wait link                  -> wait
wait holds e=0             -> wait
wait opened                -> wait
wait holds e=1             -> load g0.0 g0.1
load released w=0 b=0      -> load r0 g0.2
load abort                 -> abort
abort released w=0 b=1     -> abort
abort opened               -> abort
abort link                 -> abort

story finished out of order, returned in order
wait machine engines=1     -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0 g0.1
load released w=0 b=1      -> load
load released w=0 b=1      -> load
load released w=0 b=0      -> load r0 r1 g0.2 g0.3

story both limits, exactly
wait machine engines=1 buckets=2 bytes=3072 -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0 g0.1
load released w=0 b=0      -> load r0 g0.2
load released w=0 b=1      -> load r1 g0.3
load released w=0 b=2      -> load r2 g0.4
load released w=0 b=3      -> load r3 g0.5
load released w=0 b=4      -> load r4
load released w=0 b=5      -> seal r5 seal0
seal sealed e=0            -> done done0

story the next wave waits for every seal of this one
wait machine engines=3 groups=2 buckets=6 -> wait
wait opened                -> wait
wait holds e=0 had=63      -> wait
wait holds e=1 had=63      -> wait
wait holds e=2             -> seal seal0
seal sealed e=1            -> seal
seal sealed e=0            -> load done0 g1.0 g1.1 g1.2 g1.3 g1.4 g1.5
load sealed e=0            -> load

story in-place engines wait for phase 2
wait machine engines=2 staged=1 -> wait
wait opened                -> wait
wait holds e=0 had=63 sealed=1 -> wait
wait holds e=1             -> hold
hold opened phase=2        -> load g1.0 g1.1

story a window keeps its credit through the waves
wait machine order=1       -> wait
wait opened                -> wait
wait holds e=0             -> wait
wait holds e=1             -> load g0.0 g0.1
load released w=0 b=0      -> load
load released w=0 b=1      -> load g1.0 g1.1
load released w=1 b=1      -> load
load released w=1 b=0      -> load r0 r1 g0.2 g0.3
load released w=0 b=2      -> load
load released w=0 b=3      -> load g1.2 g1.3

story an exclusive bucket goes alone
wait machine engines=1 buckets=4 exclusive=1 -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0
load released w=0 b=0      -> load r0 g0.1
load released w=0 b=1      -> load r1 g0.2 g0.3 g0.4 g0.5

story an exclusive bucket is a window of its own
wait machine engines=1 buckets=4 exclusive=1 order=1 -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0
load released w=0 b=0      -> load r0 g0.1
load released w=0 b=1      -> load r1 g0.2 g0.3 g0.4 g0.5

story an excluded engine leaves when it is severed
wait machine               -> wait
wait opened                -> wait
wait holds e=0             -> wait
wait holds e=1             -> load g0.0 g0.1
load exclude e=0           -> load
load released w=0 b=0      -> load r0
load released w=0 b=1      -> seal r1
seal excluded e=0          -> load done0 g1.0 g1.1

story a wave of excluded engines is skipped
wait machine engines=3     -> wait
wait opened                -> wait
wait excluded e=1          -> wait
wait holds e=0 had=63      -> wait
wait holds e=2             -> seal seal0
seal sealed e=0            -> load done0 g2.0 g2.1

story a restarted transfer: holds of all, then on from there
wait machine engines=1     -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0 g0.1
load link                  -> wait
wait released w=0 b=0      -> wait
wait holds e=0 had=1       -> load r0 r1 g0.1 g0.2

story a restart after the last seal
wait machine engines=1     -> wait
wait link                  -> wait
wait holds e=0 had=63 sealed=1 -> wait
wait opened                -> done

story a restart between seal and sealed
wait machine engines=1     -> wait
wait opened                -> wait
wait holds e=0 had=63      -> seal seal0
seal link                  -> wait
wait holds e=0 had=63      -> seal seal0

story a decided number again
wait machine               -> wait
wait opened hash=1         -> hash
hash holds e=0             -> hash

story in any state: facts that are told again, or late
wait machine               -> wait
wait sealed e=0            -> wait
wait exclude e=1           -> wait
wait opened                -> wait
wait holds e=0             -> load g0.0 g0.1
load opened                -> load
load holds e=0             -> load
load excluded e=1          -> load

story aborted: deaf
wait abort                 -> abort
abort holds e=0            -> abort
abort sealed e=0           -> abort
abort exclude e=0          -> abort
abort excluded e=0         -> abort
abort abort                -> abort

story before phase 2: the same
wait machine staged=1      -> wait
wait opened                -> wait
wait holds e=0 had=63 sealed=1 -> wait
wait holds e=1             -> hold
hold released w=1 b=0      -> hold
hold holds e=1             -> hold
hold sealed e=0            -> hold
hold exclude e=0           -> hold
hold excluded e=0          -> hold
hold link                  -> wait
wait holds e=1             -> hold
hold abort                 -> abort

story while a wave seals: the same
wait machine engines=2 groups=2 -> wait
wait opened                -> wait
wait holds e=0 had=63      -> wait
wait holds e=1 had=63      -> seal seal0
seal opened                -> seal
seal released w=0 b=0      -> seal
seal holds e=0             -> seal
seal exclude e=0           -> seal
seal abort                 -> abort

story in a window's order all waves seal at the end, one after the other
wait machine order=1       -> wait
wait opened                -> wait
wait holds e=0 had=63      -> wait
wait holds e=1 had=63      -> seal seal0
seal sealed e=0            -> seal done0 seal1
seal sealed e=1            -> done done1

story when all is done: the same
wait machine engines=1     -> wait
wait opened                -> wait
wait holds e=0 had=63 sealed=1 -> done
done opened                -> done
done released w=0 b=0      -> done
done sealed e=0            -> done
done holds e=0             -> done
done exclude e=0           -> done
done excluded e=0          -> done
done link                  -> done
done abort                 -> abort

story while a decided number is hashed: the same
wait opened hash=1         -> hash
hash opened hash=1         -> hash
hash released w=0 b=0      -> hash
hash sealed e=0            -> hash
hash exclude e=0           -> hash
hash excluded e=0          -> hash
hash link                  -> hash
hash abort                 -> abort
