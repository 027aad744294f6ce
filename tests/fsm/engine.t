# engine.t - the receiver: slot/gate, event -> slot/gate, actions.
#
# v: version (1)  e: epoch (1)  n: buckets (1)  t: token (7)
# c: content (0)  whole: begun to come by load (0)
# `serving` and `was-sealed` say what the store had when the engine started.

story a push from begin to resume
idle/open       begin v=1 n=2        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    attach               -> filling/open attach
filling/open    offer v=1            -> filling/open offer
filling/open    copy-begun           -> filling/open
filling/open    copied               -> filling/open
filling/open    finish v=1           -> filling/open refuse:finish:E_PROTO
filling/open    offer v=1            -> filling/open offer
filling/open    copy-begun           -> filling/open
filling/open    finish v=1           -> filling/open refuse:finish:E_PROTO
filling/open    copied               -> filling/open
filling/open    finish v=1           -> sealing/open seal
sealing/open    seal-ok c=9          -> sealed/open reply:finish
sealed/open     finish v=1           -> sealed/open reply:finish
sealed/open     ask_receipt v=1      -> sealed/open reply:ask_receipt
sealed/open     swap v=1 c=9         -> sealed/open refuse:swap:E_AGAIN
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=1 c=8         -> sealed/paused refuse:swap:E_DATA
sealed/paused   swap v=1 c=9 t=8     -> sealed/paused refuse:swap:E_AGAIN
sealed/paused   swap v=2 c=9         -> sealed/paused refuse:swap:E_PROTO
sealed/paused   swap v=1 c=9         -> sealed/swapping publish
sealed/swapping published            -> sealed/swapping hook-swap
sealed/swapping hook-ok              -> idle/paused reply:swap
idle/paused     swap v=1 c=9         -> idle/paused reply:swap
idle/paused     resume               -> idle/resuming hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume
idle/open       resume               -> idle/open reply:resume
idle/open       swap v=1 c=9         -> idle/open reply:swap
idle/open       ask_receipt v=1      -> idle/open reply:ask_receipt
idle/open       ask_receipt v=1 e=2  -> idle/open refuse:ask_receipt:E_FENCED

story requests sent back to back are handled in order
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  swap v=2 c=2         -> sealed/pausing
sealed/pausing  resume               -> sealed/pausing
sealed/pausing  hook-ok              -> sealed/swapping pause-applies lease reply:pause publish
sealed/swapping published            -> sealed/swapping hook-swap
sealed/swapping hook-ok              -> idle/resuming reply:swap hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume

story a swap that came too early, of what is served: it is done, and said again
idle/open       serving v=4 c=4      -> idle/open
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    swap v=4 c=4         -> idle/pausing
idle/pausing    resume               -> idle/pausing
idle/pausing    hook-ok              -> idle/resuming pause-applies lease reply:pause reply:swap hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume

story a swap that came too early and is wrong is refused when its turn comes
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    swap v=2             -> idle/pausing
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause refuse:swap:E_PROTO

story a pause and its resume that come while the engine resumes are one more turn
idle/open       serving v=1 c=1      -> idle/open
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause
idle/paused     resume               -> idle/resuming hook-resume
idle/resuming   pause t=8            -> idle/resuming
idle/resuming   swap v=1 c=1 t=8     -> idle/resuming reply:swap
idle/resuming   resume t=8           -> idle/resuming
idle/resuming   hook-ok              -> idle/pausing lease-off pause-ends hook-pause
idle/pausing    hook-ok              -> idle/resuming pause-applies lease reply:pause hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume

story the same with a swap that has yet to be done
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   lease-end            -> sealed/resuming hook-resume
sealed/resuming swap v=2 c=2         -> sealed/resuming refuse:swap:E_AGAIN
sealed/resuming pause t=8            -> sealed/resuming
sealed/resuming swap v=2 c=2 t=8     -> sealed/resuming
sealed/resuming resume t=8           -> sealed/resuming
sealed/resuming hook-ok              -> sealed/pausing lease-off pause-ends hook-pause
sealed/pausing  hook-ok              -> sealed/swapping pause-applies lease reply:pause publish
sealed/swapping published            -> sealed/swapping hook-swap
sealed/swapping hook-ok              -> idle/resuming reply:swap hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume

story a resume is not held up by the pause behind it
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause
idle/paused     resume               -> idle/resuming hook-resume
idle/resuming   pause t=8            -> idle/resuming
idle/resuming   hook-ok              -> idle/pausing lease-off pause-ends reply:resume hook-pause

story a pause behind a resume that fails has what it wants; a cancel ends it
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause
idle/paused     resume               -> idle/resuming hook-resume
idle/resuming   pause t=8            -> idle/resuming
idle/resuming   hook-failed          -> idle/paused lease refuse:resume:E_IO reply:pause
idle/paused     resume t=8           -> idle/resuming hook-resume
idle/resuming   pause t=9            -> idle/resuming
idle/resuming   cancel               -> idle/resuming refuse:pause:E_FENCED
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:resume reply:cancel

story VF-06 VF-13: numbers only go up
idle/open       serving v=57 c=1     -> idle/open
idle/open       begin v=1            -> idle/open refuse:begin:E_FENCED
idle/open       begin v=0            -> idle/open refuse:begin:E_FENCED
idle/open       begin v=57           -> idle/open refuse:begin:E_FENCED
idle/open       begin v=58           -> making/open make

story a begin whose reply was lost, and one that differs
idle/open       begin v=1 n=1        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    begin v=1 n=1        -> filling/open reply:begin
filling/open    begin v=1 n=2        -> filling/open refuse:begin:E_PROTO
filling/open    begin v=2 n=1        -> filling/open refuse:begin:E_PROTO

story the space of a large version takes its time
idle/open       begin v=1 n=1        -> making/open make
making/open     begin v=1 n=1        -> making/open
making/open     offer v=1            -> making/open refuse:offer:E_PROTO
making/open     made                 -> filling/open reply:begin

story a cancel waits for the space, and the next run for the cancel
idle/open       begin v=1            -> making/open make
making/open     cancel               -> dropping/open refuse:begin:E_FENCED stop
dropping/open   begin v=1 e=2        -> dropping/open
dropping/open   made                 -> making/open drop reply:cancel make
making/open     begin v=2 e=3        -> dropping/open stop
dropping/open   make-failed          -> making/open drop make
making/open     made                 -> filling/open reply:begin

story a kept version is linked: sealed at once, and swapped
idle/open       serving v=2 c=2      -> idle/open
idle/open       begin v=3 n=2        -> making/open make
making/open     linked c=1           -> sealed/open reply:begin
sealed/open     holding v=3          -> sealed/open holding
sealed/open     finish v=3           -> sealed/open reply:finish
sealed/open     ask_receipt v=3      -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=3 c=1         -> sealed/swapping publish

story ... and cancelled while it is hashed
idle/open       serving v=2 c=2      -> idle/open
idle/open       begin v=3            -> making/open make
making/open     cancel               -> dropping/open refuse:begin:E_FENCED stop
dropping/open   linked c=1           -> idle/open drop reply:cancel

story no space
idle/open       begin v=1            -> making/open make
making/open     make-failed          -> idle/open refuse:begin:E_IO
idle/open       offer v=1            -> idle/open refuse:offer:E_FENCED

story VF-01: a failed bucket cannot be sealed, and a new run may try again
idle/open       begin v=1 n=1        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    offer v=1            -> filling/open offer
filling/open    copy-begun           -> filling/open
filling/open    copy-failed          -> filling/open
filling/open    finish v=1           -> filling/open refuse:finish:E_PROTO
filling/open    cancel               -> idle/open stop drop reply:cancel
idle/open       finish v=1           -> idle/open refuse:finish:E_FENCED
idle/open       begin v=1 e=2        -> making/open make

story a cancel waits for copies, and the next run for the cancel
idle/open       begin v=1 n=2        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    copy-begun           -> filling/open
filling/open    copy-begun           -> filling/open
filling/open    cancel               -> dropping/open stop
dropping/open   copied               -> dropping/open
dropping/open   begin v=1 e=2        -> dropping/open
dropping/open   copy-failed          -> making/open drop reply:cancel make
making/open     made                 -> filling/open reply:begin

story a newer run displaces what an older one left
idle/open       begin v=1 n=1        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    copy-begun           -> filling/open
filling/open    begin v=1 e=2        -> dropping/open stop
dropping/open   copied               -> making/open drop make
making/open     made                 -> filling/open reply:begin
filling/open    offer v=1 e=1        -> filling/open refuse:offer:E_FENCED

story post-load fails: the slot is only good to be dropped
idle/open       begin v=1 n=0        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    finish v=1           -> sealing/open seal
sealing/open    finish v=1           -> sealing/open
sealing/open    seal-failed          -> broken/open refuse:finish:E_IO
broken/open     finish v=1           -> broken/open refuse:finish:E_IO
broken/open     ask_receipt v=1      -> broken/open refuse:ask_receipt:E_IO
broken/open     begin v=1 n=0        -> broken/open refuse:begin:E_PROTO
broken/open     cancel               -> idle/open drop reply:cancel

story a cancel under the seal kills post-load
idle/open       begin v=1 n=0        -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    finish v=1           -> sealing/open seal
sealing/open    cancel               -> dropping/open refuse:finish:E_FENCED stop
dropping/open   seal-failed          -> idle/open drop reply:cancel

story after a restart a sealed slot is hashed before it is served
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=2 c=2         -> sealed/paused refuse:swap:E_AGAIN
sealed/paused   ask_receipt v=2      -> checking/paused check
checking/paused swap v=2 c=2         -> checking/paused refuse:swap:E_PROTO
checking/paused seal-failed          -> broken/paused refuse:ask_receipt:E_IO

story a lease that ends before the swap resumes the old version
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   lease-end            -> sealed/resuming hook-resume
sealed/resuming hook-ok              -> sealed/open lease-off pause-ends
sealed/open     swap v=2 c=2         -> sealed/open refuse:swap:E_AGAIN

story a lease that ends under the swap resumes the new one
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=2 c=2         -> sealed/swapping publish
sealed/swapping published            -> sealed/swapping hook-swap
sealed/swapping lease-end            -> sealed/swapping
sealed/swapping pause t=9            -> sealed/swapping refuse:pause:E_AGAIN
sealed/swapping begin v=3 e=2        -> sealed/swapping refuse:begin:E_AGAIN
sealed/swapping hook-ok              -> idle/resuming reply:swap hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends

story on-pause fails: the engine is brought back
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    hook-failed          -> idle/resuming refuse:pause:E_IO hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends

story on-swap fails: the old version is served before anybody hears
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=2 c=2         -> sealed/swapping publish
sealed/swapping published            -> sealed/swapping hook-swap
sealed/swapping cancel               -> sealed/swapping
sealed/swapping hook-failed          -> sealed/swapping unpublish
sealed/swapping publish-failed       -> idle/resuming refuse:swap:E_IO drop hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends reply:cancel

story the rename fails
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=2 c=2         -> sealed/swapping publish
sealed/swapping publish-failed       -> sealed/paused refuse:swap:E_IO

story on-resume fails: paused still, and tried again when the lease ends
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause
idle/paused     resume t=9           -> idle/paused refuse:resume:E_FENCED
idle/paused     resume t=0           -> idle/resuming hook-resume
idle/resuming   hook-failed          -> idle/paused lease refuse:resume:E_IO
idle/paused     lease-end            -> idle/resuming hook-resume
idle/resuming   hook-ok              -> idle/open lease-off pause-ends

story a later run pauses over an older pause, and a cancel resumes
idle/open       pause t=7            -> idle/pausing hook-pause
idle/pausing    hook-ok              -> idle/paused pause-applies lease reply:pause
idle/paused     pause t=8 e=2        -> idle/paused lease reply:pause
idle/paused     resume t=7           -> idle/paused refuse:resume:E_FENCED
idle/paused     cancel e=2           -> idle/resuming hook-resume
idle/resuming   pause t=9            -> idle/resuming
idle/resuming   hook-ok              -> idle/pausing lease-off pause-ends reply:cancel hook-pause

story a version that comes whole
idle/open       begin v=1 whole=1    -> making/open make
making/open     load v=1             -> making/open refuse:load:E_PROTO
making/open     made                 -> filling/open reply:begin
filling/open    begin v=1            -> filling/open refuse:begin:E_PROTO
filling/open    begin v=1 whole=1    -> filling/open reply:begin
filling/open    offer v=1            -> filling/open refuse:offer:E_PROTO
filling/open    finish v=1           -> filling/open refuse:finish:E_PROTO
filling/open    load v=2             -> filling/open refuse:load:E_FENCED
filling/open    load v=1             -> sealing/open load
sealing/open    load v=1             -> sealing/open
sealing/open    seal-ok c=9          -> sealed/open reply:load
sealed/open     load v=1             -> sealed/open reply:load
sealed/open     ask_receipt v=1      -> sealed/open reply:ask_receipt

story a load that fails is told, and asked again told again
idle/open       begin v=1 whole=1    -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    load v=1             -> sealing/open load
sealing/open    seal-failed          -> broken/open refuse:load:E_IO
broken/open     load v=1             -> broken/open refuse:load:E_IO
broken/open     cancel               -> idle/open drop reply:cancel

story cancelled while it loads
idle/open       begin v=1 whole=1    -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    load v=1             -> sealing/open load
sealing/open    cancel               -> dropping/open refuse:load:E_FENCED stop
dropping/open   seal-failed          -> idle/open drop reply:cancel

story what is offered is not loaded
idle/open       begin v=1            -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    load v=1             -> filling/open refuse:load:E_PROTO

story while it seals, everything that is said again is answered
idle/open       begin v=1            -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    holding v=1          -> filling/open holding
filling/open    copy-begun           -> filling/open
filling/open    copied               -> filling/open
filling/open    finish v=1           -> sealing/open seal
sealing/open    begin v=1            -> sealing/open reply:begin
sealing/open    attach v=1           -> sealing/open attach
sealing/open    offer v=1            -> sealing/open offer
sealing/open    holding v=1          -> sealing/open holding
sealing/open    begin v=2 e=2        -> dropping/open refuse:finish:E_FENCED stop
dropping/open   cancel e=2           -> dropping/open refuse:begin:E_FENCED
dropping/open   seal-ok              -> idle/open drop reply:cancel

story sealed: the same; a newer run takes the slot
idle/open       begin v=1            -> making/open make
making/open     made                 -> filling/open reply:begin
filling/open    copy-begun           -> filling/open
filling/open    copied               -> filling/open
filling/open    finish v=1           -> sealing/open seal
sealing/open    seal-ok c=9          -> sealed/open reply:finish
sealed/open     begin v=1            -> sealed/open reply:begin
sealed/open     attach v=1           -> sealed/open attach
sealed/open     offer v=1            -> sealed/open offer
sealed/open     begin v=2 e=2        -> making/open drop make
making/open     made                 -> filling/open reply:begin
filling/open    copy-begun           -> filling/open
filling/open    copied               -> filling/open
filling/open    finish v=2 e=2       -> sealing/open seal
sealing/open    seal-failed          -> broken/open refuse:finish:E_IO
broken/open     begin v=3 e=3        -> making/open drop make

story a slot of an earlier boot is checked: what comes meanwhile
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   begin v=2 n=0        -> checking/open reply:begin
checking/open   holding v=2          -> checking/open holding
checking/open   finish v=2           -> checking/open
checking/open   load v=2             -> checking/open
checking/open   ask_receipt v=2      -> checking/open
checking/open   cancel               -> dropping/open refuse:finish:E_FENCED refuse:load:E_FENCED refuse:ask_receipt:E_FENCED stop
dropping/open   seal-ok c=2          -> idle/open drop reply:cancel

story a slot of an earlier boot is checked, and a newer run begins
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   begin v=3 e=2        -> dropping/open refuse:ask_receipt:E_FENCED stop
dropping/open   seal-ok c=2          -> making/open drop make

story cancelled when it is sealed
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     cancel               -> idle/open drop reply:cancel

story said again while a hook runs
idle/open       was-sealed v=2 c=2   -> sealed/open
sealed/open     ask_receipt v=2      -> checking/open check
checking/open   seal-ok c=2          -> sealed/open reply:ask_receipt
sealed/open     pause                -> sealed/pausing hook-pause
sealed/pausing  pause                -> sealed/pausing
sealed/pausing  hook-ok              -> sealed/paused pause-applies lease reply:pause
sealed/paused   swap v=2 c=2         -> sealed/swapping publish
sealed/swapping swap v=2 c=2         -> sealed/swapping
sealed/swapping resume               -> sealed/swapping

story cancelled while it pauses
idle/open       pause                -> idle/pausing hook-pause
idle/pausing    cancel               -> idle/pausing
idle/pausing    hook-ok              -> idle/resuming pause-applies lease reply:pause hook-resume
