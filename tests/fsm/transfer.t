# transfer.t - state event -> state, actions (share/doc/internals.md, 6).
#
# Three buckets.  Engine 0 has receivers 0 (workers 0, 1) and 1 (worker 2),
# engine 1 has receiver 2.  r: receiver, w: worker, b: bucket, e: engine.
# `grant` is to both engines, unless first and count say otherwise; `up` and
# `down` are admit's link; `whole`: the transport carries versions whole; `run`
# brings a machine to its first holds.

story from opened to drained
wait up                    -> wait
wait opened                -> ask ask0 ask1 ask2
ask held r=0               -> ask
ask held r=1               -> ask
ask held r=2               -> run holds0:0 holds1:0
run grant b=0              -> run prepare0
run ready b=0              -> run offer0:0 offer1:0 offer2:0
run moved r=0 b=0          -> run
run ack r=0 w=0 b=0        -> run
run ack r=0 w=1 b=0        -> run
run moved r=1 b=0          -> run
run ack r=1 w=2 b=0        -> run
run ack r=2 w=0 b=0        -> run acked0
run digest b=0             -> run
run moved r=2 b=0          -> run moved0 staged0 released0
run seal                   -> run finish0 finish1 finish2
run finished r=0           -> run
run finished r=2           -> run sealed1
run finished r=1           -> verify sealed0 hash
verify verified            -> done drained
done commit-up             -> done sealed0 sealed1 drained

story I5 acks that are refused, each naming engine and bucket
wait run                   -> run
run grant b=1              -> run prepare1
run ack r=2 w=0 b=1        -> run failed1:1
run ready b=1              -> run offer0:1 offer1:1
run ack r=0 w=0 b=1        -> run
run ack r=0 w=0 b=1        -> run failed0:1
run ack r=0 w=1 b=1        -> run

story another digest than the source has
wait run                   -> run
run digest b=0             -> run
run grant b=0              -> run prepare0
run ready b=0              -> run offer0:0 offer1:0 offer2:0
run ack r=2 w=0 b=0 d=2    -> run failed1:0

story a wrong digest that is known to be so only later
wait run                   -> run
run grant b=0              -> run prepare0
run ready b=0              -> run offer0:0 offer1:0 offer2:0
run ack r=2 w=0 b=0 d=2    -> run
run ack r=0 w=0 b=0        -> run
run digest b=0             -> run failed1:0

story one dead worker fails its engine; exclusion lets the rest go on
wait run                   -> run
run grant b=0              -> run prepare0
run ready b=0              -> run offer0:0 offer1:0 offer2:0
run fault e=0 b=0          -> run failed0:0
run ack r=2 w=0 b=0        -> run
run moved r=2 b=0          -> run
run grant b=1              -> run prepare1
run ready b=1              -> run offer2:1
run exclude e=0            -> run sever0
run severed e=0            -> run excluded0 moved0 acked0 staged0 released0
run ack r=0 w=0 b=0        -> run
run exclude e=0            -> run excluded0

story a grant that comes when all who are left hold it all: released at once
wait up                    -> wait
wait opened                -> ask ask0 ask1 ask2
ask held r=0 had=7 sealed=1 -> ask
ask held r=1 had=7 sealed=1 -> ask
ask held r=2               -> run sealed0 holds0:7s holds1:0
run exclude e=1            -> run sever1
run severed e=1            -> verify excluded1 staged0 staged1 staged2 hash
verify grant b=1           -> verify moved1 acked1 released1
verify verified            -> done drained
done grant b=2             -> done moved2 acked2 released2

story the source's fault names no engine
wait run                   -> run
run fault b=2              -> run failed:2
run abort                  -> abort stop
abort grant b=0            -> abort
abort verified             -> abort

story admit is new: first everything in flight ends
wait run                   -> run
run grant b=0 first=1 count=1 -> run prepare0
run ready b=0              -> run offer2:0
run down                   -> run
run up                     -> run
run grant b=1              -> run
run ack r=2 w=0 b=0        -> run acked0
run moved r=2 b=0          -> run moved0 released0 holds0:0 holds1:1
run grant b=0              -> run prepare0
run ready b=0              -> run offer0:0 offer1:0

story transfer is new: engines say what they hold
wait opened                -> ask ask0 ask1 ask2
ask held r=0 had=7         -> ask
ask held r=1 had=3         -> ask
ask held r=2 had=7 sealed=1 -> run sealed1
run up                     -> run holds0:3 holds1:7s
run grant b=0              -> run moved0 acked0 staged0 released0
run grant b=2              -> run prepare2

story an engine that does not say what it holds is waited for until excluded
wait up                    -> wait
wait opened                -> ask ask0 ask1 ask2
ask held r=2               -> ask
ask fault e=0              -> ask failed0
ask exclude e=0            -> run sever0 holds1:0
run severed e=0            -> run excluded0

story a decided number again
wait opened hash=1         -> verify hash
verify verified            -> done drained

story whole: nothing is granted, a load seals
wait whole                 -> wait
wait up                    -> wait
wait opened                -> ask ask0 ask1 ask2
ask held r=0               -> ask
ask held r=1               -> ask
ask held r=2               -> ask
ask placed                 -> run holds0:255 holds1:255
run seal                   -> run finish0 finish1 finish2
run finished r=2           -> run sealed1
run finished r=0           -> run
run finished r=1           -> verify sealed0 hash
verify verified            -> done drained

story whole: placed before all is known
wait whole                 -> wait
wait opened                -> ask ask0 ask1 ask2
ask placed                 -> ask
ask up                     -> ask
ask held r=0               -> ask
ask held r=1               -> ask
ask held r=2               -> run holds0:255 holds1:255

story nothing is asked yet: facts are kept, the rest is of an older admit
wait grant b=0             -> wait
wait ready b=0             -> wait
wait moved b=0             -> wait
wait ack b=0               -> wait failed0:0
wait finished              -> wait
wait seal                  -> wait
wait up                    -> wait
wait down                  -> wait
wait commit-up             -> wait failed0
wait digest b=0            -> wait
wait placed                -> wait
wait fault b=0             -> wait failed:0
wait exclude e=1           -> wait sever1
wait severed e=1           -> wait excluded1
wait abort                 -> abort stop

story engines are asked: the same
wait opened                -> ask ask0 ask1 ask2
ask opened                 -> ask
ask grant b=0              -> ask
ask ready b=0              -> ask
ask moved b=0              -> ask
ask ack b=0                -> ask failed0:0
ask finished               -> ask
ask seal                   -> ask
ask up                     -> ask
ask down                   -> ask
ask commit-up              -> ask failed0
ask digest b=0             -> ask
ask severed e=1            -> ask
ask abort                  -> abort stop

story buckets move: what is told again
wait run                   -> run
run opened                 -> run
run held r=0               -> run
run commit-up              -> run
run placed                 -> run
run abort                  -> abort stop

story all is sealed, and hashed once more: the same
wait opened hash=1         -> verify hash
verify opened hash=1       -> verify
verify held r=0            -> verify
verify grant b=0           -> verify
verify ready b=0           -> verify
verify moved b=0           -> verify
verify ack b=0             -> verify failed0:0
verify finished            -> verify
verify seal                -> verify finish2
verify up                  -> verify holds0:0 holds1:0
verify down                -> verify
verify commit-up           -> verify failed0
verify digest b=0          -> verify
verify placed              -> verify
verify fault b=0           -> verify failed:0
verify exclude e=1         -> verify sever1
verify severed e=1         -> verify excluded1
verify abort               -> abort stop

story drained: the same
wait opened hash=1         -> verify hash
verify verified            -> done drained
done opened hash=1         -> done
done held r=0              -> done
done grant b=0             -> done
done ready b=0             -> done
done moved b=0             -> done
done ack b=0               -> done failed0:0
done finished              -> done
done seal                  -> done finish2
done up                    -> done holds0:0 holds1:0
done down                  -> done
done digest b=0            -> done
done placed                -> done
done fault b=0             -> done failed:0
done exclude e=1           -> done sever1
done severed e=1           -> done excluded1
done abort                 -> abort stop

story aborted: deaf
wait abort                 -> abort stop
abort opened               -> abort
abort up                   -> abort
abort down                 -> abort
abort commit-up            -> abort
abort held r=0             -> abort
abort ready b=0            -> abort
abort digest b=0           -> abort
abort moved b=0            -> abort
abort ack b=0              -> abort
abort seal                 -> abort
abort finished             -> abort
abort placed               -> abort
abort fault b=0            -> abort
abort exclude e=0          -> abort
abort severed e=0          -> abort
abort verified             -> abort
abort abort                -> abort
