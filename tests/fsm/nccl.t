# nccl.t - event -> state, actions of a weight-update group (nccl_group.h).
#
# First line of a story: `group` with kind (0 SGLang, 1 vLLM), engines (2).
# ask:CALL goes to every engine; the others are rank 0's and the store's.

story SGLang: met at the store, joined for the first bucket
new group            -> new
new form             -> forming ask:join
forming answer       -> forming
forming answer       -> idle done
idle begin           -> beginning ask:begin
beginning answer     -> beginning
beginning answer     -> open done
open bucket          -> loading ask:load join cast
loading wanted       -> loading id
loading wanted       -> loading
loading joined       -> loading close
loading answer       -> loading
loading moved        -> loading
loading answer       -> open done
open bucket          -> loading ask:load cast
loading answer       -> loading
loading answer       -> loading
loading moved        -> open done
open end             -> ending ask:end
ending answer        -> ending
ending answer        -> idle done
idle leave           -> leaving abort ask:leave
leaving answer       -> leaving
leaving answer       -> gone done

story vLLM: joining is making the communicator
new group kind=1     -> new
new form             -> forming ask:join join
forming wanted       -> forming id
forming wanted       -> forming
forming answer       -> forming
forming answer       -> forming
forming joined       -> idle close done
idle begin           -> beginning ask:begin
beginning answer     -> beginning
beginning answer     -> open done
open bucket          -> loading ask:load cast
loading moved        -> loading
loading answer       -> loading
loading answer       -> open done
open end             -> ending ask:end
ending answer        -> ending
ending answer        -> idle done

story vLLM: rank 0 has joined before the last answer
new group kind=1     -> new
new form             -> forming ask:join join
forming joined       -> forming close
forming answer       -> forming
forming answer       -> idle done
idle leave           -> leaving abort ask:leave

story a group that was never used is left, too
new group engines=1  -> new
new form             -> forming ask:join
forming answer       -> idle done
idle leave           -> leaving close ask:leave
leaving answer       -> gone done

story nobody joins for rank 0, or answers without being asked
new group            -> new
new joined           -> new refused
new answer           -> new refused
new bucket           -> new refused
new form             -> forming ask:join
forming joined       -> forming refused
forming moved        -> forming refused
forming begin        -> forming refused
forming form         -> forming refused
forming answer       -> forming
forming answer       -> idle done
idle answer          -> idle refused
idle wanted          -> idle refused
idle bucket          -> idle refused
idle end             -> idle refused
idle begin           -> beginning ask:begin
beginning answer     -> beginning
beginning answer     -> open done
open leave           -> open refused
open bucket          -> loading ask:load join cast
loading moved        -> loading refused
loading bucket       -> loading refused
loading joined       -> loading close
loading joined       -> loading refused
loading answer       -> loading
loading answer       -> loading
loading answer       -> loading refused

story an engine fails as it joins
new group            -> new
new form             -> forming ask:join
forming answer       -> forming
forming failed       -> broken close broken
broken answer        -> broken
broken wanted        -> broken
broken begin         -> broken refused

story a worker never comes for the first bucket
new group engines=1  -> new
new form             -> forming ask:join
forming answer       -> idle done
idle begin           -> beginning ask:begin
beginning answer     -> open done
open bucket          -> loading ask:load join cast
loading wanted       -> loading id
loading failed       -> broken abort close broken
broken joined        -> broken
broken moved         -> broken
broken failed        -> broken

story rank 0 fails between two updates
new group engines=1 kind=1 -> new
new form             -> forming ask:join join
forming joined       -> forming close
forming answer       -> idle done
idle failed          -> broken abort broken

story an engine cannot begin
new group engines=1  -> new
new form             -> forming ask:join
forming answer       -> idle done
idle begin           -> beginning ask:begin
beginning failed     -> broken close broken

story rank 0 fails between two buckets
new group engines=1 kind=1 -> new
new form             -> forming ask:join join
forming joined       -> forming close
forming answer       -> idle done
idle begin           -> beginning ask:begin
beginning answer     -> open done
open failed          -> broken abort broken

story an engine cannot end
new group engines=1  -> new
new form             -> forming ask:join
forming answer       -> idle done
idle begin           -> beginning ask:begin
beginning answer     -> open done
open end             -> ending ask:end
ending failed        -> broken close broken

story an engine cannot leave
new group engines=1  -> new
new form             -> forming ask:join
forming answer       -> idle done
idle leave           -> leaving close ask:leave
leaving failed       -> broken close broken
