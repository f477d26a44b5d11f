#pragma once

#include "framework/net/link.h"
#include "framework/sync/slots.h"
#include "framework/tensors/safetensors_writer.h"
#include "stages/adamw.h"

namespace strait::stages {

// A stage's state to and from checkpoints.

// Returns the tensor of this global name; throws if there is none.
using ReadTensor = std::function<at::Tensor(const std::string& name)>;
using HasTensor = std::function<bool(const std::string& name)>;

// Copies or quantises a tensor of a file. StoreError if its shape differs.
void load_parameter(const models::Parameter& parameter, const ReadTensor& read);

// Loads the trained weights that are `chosen` (empty: all) from another source: a Hugging Face
// directory or another run. Moments and counters do not change.
void load_weights(AdamW& optimizer, const ReadTensor& read,
                  const std::function<bool(const std::string& name)>& chosen = {});

// Loads everything that a step changes. Names are global, so the checkpoint may come from another
// partition.
void restore(AdamW& optimizer, const ReadTensor& read);

// The stage's tensors for a checkpoint: masters under their parameters' names, optimizer state
// under these names with a suffix. They share memory with the optimizer, so write them before the
// next update.
std::vector<tensors::NamedTensor> saved_tensors(const AdamW& optimizer);
// The moments alone: what a replica adds to another one's, with which it shares the state.
std::vector<tensors::NamedTensor> saved_moments(const AdamW& optimizer);

// A checkpoint has hashes of frozen weights instead of their values: of the values that training
// uses, after quantising. StoreError if one differs: the checkpoint's run had another model, or
// quantised it differently.
void append_hashes(const std::vector<models::Parameter>& frozen,
                   std::vector<tensors::NamedTensor>& tensors);
// The name of such a hash in a checkpoint.
std::string frozen_hash_name(const std::string& parameter);
void check_hashes(const std::vector<models::Parameter>& frozen, const ReadTensor& read);

// A stage's state to and from the same stage of a replica that rejoins: the model that replicas
// agree on (slot `model`), the optimizer's moments and counters, and the slots of the sync method
// that are equal on all replicas. A member sends it from its memory between two steps.

// Throws what the link throws.
void send_state(const sync::Slots& slots, const std::string& model, const AdamW& optimizer,
                net::Link& link);

// Other slots do not change, and the weights become the model. `poll` is called repeatedly while
// this waits, and with `received` after every part; it throws to give up. CodecError if the parts
// do not fit this stage.
void receive_state(sync::Slots& slots, const std::string& model, AdamW& optimizer, net::Link& link,
                   const std::function<void(bool received)>& poll);

}  // namespace strait::stages
