#pragma once

#include "framework/sync/sync_method.h"
#include "kernels/averaged_adamw.h"
#include "kernels/moment_codes.h"
#include "models/layer.h"
#include "stages/gradients.h"
#include "stages/stage_layout.h"

namespace strait::stages {

// How moments are kept. Narrow ones are decoded for the update, a part of a parameter at a time.
enum class MomentType : std::uint8_t { float32, bfloat16, int8 };

class Transfer;

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // on parameters of two or more dimensions
  MomentType moments = MomentType::float32;
  std::map<std::string, double> rates = {};  // factors of the learning rate by pattern of names
  // The state is in host memory, whatever the parameters' device, and the CPU makes the update.
  bool offload = false;
  // Moments, and masters apart from their parameters, are in files on the disk whose names begin
  // with this. Empty: in memory.
  std::filesystem::path disk_file = {};
  std::set<std::string> muon = {};  // parameters that Muon updates instead, see muon.h
  // Replicas that share the state by sync::owners_of(), and the number of this one among them. Each
  // has the moments of the parameters that it owns, and updates these alone.
  std::size_t sharers = 1;
  std::size_t sharer = 0;
};

// libtorch's fused AdamW over a stage's parameters. A parameter narrower than float32 has a float32
// master here, which is updated and saved in checkpoints. Everything is on the parameters' device,
// or, with `offload`, in host memory. Masters and float32 moments are contiguous, in the order of
// the layout; float32 parameters of the same device are moved into that memory.
class AdamW {
 public:
  // Updates the parameters that have their own storage: the ones in the layout. A tied LM
  // head that shares the embedding's memory is updated with it.
  AdamW(const std::vector<models::Parameter>& parameters, const sync::Layout& layout,
        const AdamWOptions& options);
  ~AdamW();

  // `members`: the number of replicas that now train together. Where the state is
  // shared, the caller has to gather the masters and to publish() them.
  void update(Gradients& gradients, double learning_rate,
              sync::UpdateRule rule = sync::UpdateRule::adamw, std::size_t members = 1);

  // The state of one parameter, as in a checkpoint.
  struct Slot {
    std::string name;
    at::Tensor master;  // float32
    bool owned = true;  // otherwise another replica has its moments and updates it
    // In the shape of the parameter; sizes of blocks are defined for int8 only.
    kernels::CodedMoment first_moment;
    kernels::CodedMoment second_moment;  // undefined for Muon
    // The number of updates so far, as a float scalar for the fused kernel. It is on the CPU, where
    // it is read without waiting for the device.
    at::Tensor updates;
    double rate = 1;  // factor of the learning rate
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // Both of every parameter, in float32, as sync methods change them.
  bool has_float_moments() const { return in_float() && !shares_state(); }
  // Whether other replicas have the moments of some parameters.
  bool shares_state() const { return options_.sharers > 1; }
  // Contiguous, over the layout. Moments are in their own type, of owned parameters only.
  const at::Tensor& masters() const { return masters_.whole(); }
  const at::Tensor& first_moments() const { return first_moments_.whole(); }
  const at::Tensor& second_moments() const { return second_moments_.whole(); }
  // Copies masters into their parameters, after masters were loaded.
  void publish();
  // Copies parameters into their masters, after parameters were initialized.
  void adopt();
  // Takes over a moment of a checkpoint, which may be of another type.
  void set_moment(const Slot& slot, kernels::MomentKind kind, const kernels::CodedMoment& saved);

 private:
  // A part of a parameter, in which it is updated, coded and copied.
  struct Part {
    std::size_t slot = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  bool has_codes() const { return options_.moments != MomentType::float32; }
  bool in_float() const { return !has_codes() && options_.muon.empty(); }
  // Whether the model's parameter has other memory than its master.
  bool is_apart(std::size_t slot) const;
  // The slots with this rate and weight decay.
  void update_group(Gradients& gradients, double learning_rate, double rate, bool decays);
  void update_by_moments(double learning_rate);
  // For narrow moments, off-load and Muon. Publishes what it updates if the state is off-loaded.
  void update_in_parts(Gradients& gradients, double learning_rate, std::size_t members);
  void update_part(const Part& part, const at::Tensor& gradient, double learning_rate,
                   std::size_t members);
  void update_matrix(const Slot& slot, const at::Tensor& gradient, double learning_rate);
  void publish(const Part& part);
  void update_by_own(Gradients& gradients, double learning_rate, std::size_t members);
  kernels::AveragedAdamW rule_of(const Slot& slot, double learning_rate, std::size_t members) const;
  double decay_of(const Slot& slot) const;

  AdamWOptions options_;
  FlatTensor masters_;
  FlatTensor first_moments_;
  FlatTensor second_moments_;
  at::Tensor block_sizes_;  // of int8 moments: [first, second][block]
  std::vector<Slot> slots_;
  std::vector<at::Tensor> values_;        // the model's leaves, one per slot
  std::vector<std::size_t> gradient_of_;  // index into Gradients, one per slot
  // Between the parameters' device and the host if the state is off-loaded; else copies nothing.
  std::unique_ptr<Transfer> transfer_;
  bool offloaded_ = false;
};

enum class Decay { cosine, linear, constant, inverse_sqrt };

struct LearningRateOptions {
  double peak = 1e-3;
  double least = 0;         // what cosine and linear decays end at
  std::int64_t warmup = 0;  // steps of linear increase; the first step's rate is not zero
  std::int64_t steps =
      1;  // of the whole run; the decay would reach `least` one step after the last
  Decay decay = Decay::cosine;
};

// The learning rate of step `step`, counted from 0. Pure, so that a resumed run needs no state.
double learning_rate(const LearningRateOptions& options, std::int64_t step);

}  // namespace strait::stages
