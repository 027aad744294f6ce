# homing.t - one engine on its way home: state event -> state action.

story forward, its boot and receipt known
idle      forward  -> swap swap
swap      ok       -> home is-home

story FL-05 a lost reply: found held, swapped again
idle      forward  -> swap swap
swap      failed   -> wait timer
wait      timer    -> find probe
find      held     -> swap swap
swap      ok       -> home is-home

story restarted after the decision: a fresh receipt first
idle      forward  -> swap swap
swap      gone     -> wait timer
wait      timer    -> find probe
find      ok       -> receipt ask
receipt   ok       -> swap swap
swap      ok       -> home is-home

story it serves the version already
idle      find     -> find probe
find      there    -> home is-home

story forward: a dead engine may be started again
idle      find     -> find probe
find      gone     -> wait timer
wait      timer    -> find probe
find      failed   -> wait timer
wait      timer    -> find probe
find      ok       -> receipt ask
receipt   gone     -> wait timer
wait      timer    -> find probe
find      ok       -> receipt ask
receipt   failed   -> wait timer
wait      timer    -> find probe
find      there    -> home is-home

story FL-04 one known to be away is not waited for again
idle      look     -> find probe
find      gone     -> away is-away

story a known one that answers is brought on
idle      look     -> find probe
find      ok       -> receipt ask
receipt   ok       -> swap swap

story fenced off, asked for its state
idle      find     -> find probe
find      refused  -> away is-away

story fenced off, asked for its receipt
idle      find     -> find probe
find      ok       -> receipt ask
receipt   refused  -> away is-away

story fenced off at the swap
idle      forward  -> swap swap
swap      refused  -> away is-away

story lagging: the deadline ends each wait
idle      find     -> find probe
find      deadline -> away is-away

story ... for the receipt
idle      find     -> find probe
find      ok       -> receipt ask
receipt   deadline -> away is-away

story ... for the swap
idle      forward  -> swap swap
swap      deadline -> away is-away

story ... and between two tries
idle      forward  -> swap swap
swap      failed   -> wait timer
wait      deadline -> away is-away

story back to what it served
idle      back      -> cancel cancel
cancel    failed    -> wait-back timer
wait-back timer     -> cancel cancel
cancel    ok        -> home is-home

story FL-01 back: a dead engine is not waited for
idle      back      -> cancel cancel
cancel    gone      -> away is-away

story back: a newer run owns the engine
idle      back      -> cancel cancel
cancel    refused   -> home is-home

story back, never answered
idle      back      -> cancel cancel
cancel    deadline  -> away is-away

story back, never answered twice
idle      back      -> cancel cancel
cancel    failed    -> wait-back timer
wait-back deadline  -> away is-away

story what is over stays so
idle      forward  -> swap swap
swap      ok       -> home is-home
home      failed   -> home refused
home      deadline -> home refused
