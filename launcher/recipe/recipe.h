#pragma once

#include "framework/trace/early_stop.h"
#include "launcher/recipe/recipe_values.h"

namespace strait::recipe {

// The table train.preference: what is learnt from pairs of answers.
struct PreferenceSettings {
  PreferenceKind loss = PreferenceKind::none;
  std::optional<double> beta = std::nullopt;  // absent: 2 of simpo, else 0.1
  double margin = 0.5;                        // of simpo
  // A Hugging Face directory that dpo and kto compare with; empty: the model that training begins
  // with, and with adapters the model without them.
  std::string reference = {};
  double desirable_weight = 1;    // of kto
  double undesirable_weight = 1;  // of kto
  bool operator==(const PreferenceSettings&) const = default;
};

// One recipe file as a plain value; paths as the user wrote them; comments say what absence means.
struct Recipe {
  using Lora = LoraSettings;
  using Hosts = HostSettings;
  using Codec = codec::CodecSettings;
  struct Model {
    std::string path;                         // a Hugging Face directory; required
    Weights weights = Weights::load;          // random: only config.json is needed
    std::string weights_run;                  // a run's directory, or a checkpoint's; weights run
    Dtype dtype = Dtype::float32;             // parameters and arithmetic
    Device device = Device::automatic;        // automatic: cuda where there is one
    Recompute recompute = Recompute::none;    // of activations; see recipe_keys.cpp
    bool choose_recompute = false;            // "auto": none until the plan has chosen
    std::optional<Lora> lora = std::nullopt;  // absent: full fine-tuning
    std::string adapter;  // a PEFT directory to start from, with its own `lora`; empty: none
    Quantization quantization = Quantization::none;  // of frozen matrices; only with adapters
    bool operator==(const Model&) const = default;
  };

  struct Data {
    std::vector<data::DataFile> train;  // text, JSONL or token files; required
    std::vector<data::DataFile> eval;   // empty: no evaluation, but for hold_out
    double hold_out = 0;                // share of the records of `train` for evaluation
    std::string tokenizer;  // "bytes" or a directory with tokenizer.json; empty: the model's own
    ChatTemplate chat_template = ChatTemplate::own;
    std::int64_t row = 128;  // tokens of a packed row
    bool shuffle = true;     // the order of samples; by seed, epoch and replica
    data::Targets targets = data::Targets::assistant;  // what of a record is learnt
    data::TooLong too_long = data::TooLong::refuse;    // records longer than a row, but no text
    data::Packing packing = data::Packing::first_fit;
    std::int64_t overlap = 0;  // tokens that a further row of a long text repeats as context
    bool operator==(const Data&) const = default;
  };

  struct Partition {
    PartitionKind kind = PartitionKind::balanced;
    // First and last layer of each stage's first chunk, then of each one's second; kind ranges.
    std::vector<std::pair<int, int>> ranges;
    std::string plugin;  // the shared object; kind plugin
    bool operator==(const Partition&) const = default;
  };

  struct Pipeline {
    std::int64_t stages = 1;                             // processes that a model is split over
    std::int64_t replicas = 1;                           // copies of the whole pipeline
    std::string schedule = "1f1b";                       // a name of schedules::catalogue()
    std::optional<std::int64_t> chunks = std::nullopt;   // on every stage; absent: by schedule
    std::optional<std::int64_t> depth = std::nullopt;    // forwards beyond 1F1B; absent: auto
    std::optional<std::int64_t> slices = 1;              // of a micro-batch's rows; absent: auto
    Partition partition;                                 // of layers to stages
    std::optional<std::int64_t> threads = std::nullopt;  // per process; absent: divide the cores
    bool choose_stages = false;                          // "auto": 1 until the plan has chosen
    bool choose_replicas = false;                        // the same
    bool choose_schedule = false;                        // the same, of "1f1b"
    // Per step and replica; absent: auto, empty: equal.
    std::optional<std::vector<std::int64_t>> rows = std::nullopt;
    bool replan = false;             // lay the run out again when measured speeds say that it pays
    std::vector<std::string> hosts;  // of processes, by replica, then stage; empty: in their order
    bool operator==(const Pipeline&) const = default;
  };

  struct Train {
    std::optional<std::int64_t> steps = std::nullopt;   // of the run
    std::optional<std::int64_t> epochs = std::nullopt;  // instead of steps; one is set
    std::int64_t batch = 32;                            // rows per step, all replicas together
    std::optional<std::int64_t> micro_batch = 4;        // sequences; absent: auto
    double learning_rate = 1e-3;                        // at the end of the warm-up
    DecayKind decay = DecayKind::cosine;                // of the learning rate after the warm-up
    double min_rate = 0;                                // what cosine and linear decays end at
    std::int64_t warmup = 0;                            // steps
    std::pair<double, double> betas = {0.9, 0.95};      // of AdamW
    OptimizerKind optimizer = OptimizerKind::adamw;     // muon: of the matrices of blocks
    Moments moments = Moments::float32;                 // in memory and in checkpoints
    bool choose_moments = false;                        // "auto": float32 until the plan has chosen
    Offload offload = Offload::none;                    // to host memory
    bool choose_offload = false;                        // "auto": none until the plan has chosen
    double weight_decay = 0.1;                          // on parameters of two or more dimensions
    double clip = 1.0;                                  // global gradient norm; 0 is off
    double neftune = 0;                   // alpha of the noise on token embeddings; 0 is off
    std::map<std::string, double> rates;  // factors of the learning rate, by pattern of names
    PreferenceSettings preference;
    std::int64_t eval_every = 0;       // steps; 0: only at the end, when there is data to evaluate
    trace::EarlyStop::Rule stop_when;  // by the evaluation loss
    bool operator==(const Train&) const = default;
  };

  // How replicas agree on weights. Absent: the method's default, see recipe_sync_keys.h.
  struct Sync {
    std::string method;                               // empty: allreduce, where there are replicas
    LossRule on_loss = LossRule::stop;                // when a process of a replica is lost
    GroupUse group = GroupUse::automatic;             // sums without links
    bool share_state = false;                         // of the optimizer, in groups
    Dtype wire_dtype = Dtype::float32;                // of means
    std::optional<double> random = std::nullopt;      // share of the weights that a round considers
    std::optional<double> top = std::nullopt;         // share of these that is sent
    std::optional<std::int64_t> bits = std::nullopt;  // of a value that is sent
    std::optional<std::int64_t> every = std::nullopt;          // updates between two rounds
    std::int64_t fragments = 4;                                // that take turns
    std::int64_t late = 1;                                     // updates until a result is applied
    std::optional<double> outer_learning_rate = std::nullopt;  // of a step between agreements
    std::optional<double> outer_momentum = std::nullopt;       // of these steps
    std::int64_t rank = 2;                                     // of a matrix that is sent
    bool operator==(const Sync&) const = default;
  };

  struct Checkpoint {
    std::int64_t every = 100;    // steps; 0: only at the end
    std::int64_t keep = 2;       // complete checkpoints that stay
    std::int64_t keep_best = 0;  // more of them, those with the best evaluation loss
    CheckpointHome home = CheckpointHome::automatic;
    std::int64_t memory = std::int64_t{1} << 30U;  // bytes per process
    std::int64_t memory_every = 0;                 // steps; 0: none is held in memory
    bool operator==(const Checkpoint&) const = default;
  };

  struct Hooks {  // commands for a shell; empty: none
    std::string end, failure, checkpoint;
    bool operator==(const Hooks&) const = default;
  };

  std::string name;       // the run directory is runs/<name>/; by default the file's own name
  std::int64_t seed = 1;  // of everything random
  std::vector<std::string> plugins;  // shared objects whose parts are known by name in here
  Model model;
  Data data;
  Pipeline pipeline;
  Train train;
  Codec codec;
  Sync sync;
  Checkpoint checkpoint;
  Hooks on;
  Hosts hosts;
  KeyOrigins origins;  // compares as equal
  bool operator==(const Recipe&) const = default;
};

}  // namespace strait::recipe
