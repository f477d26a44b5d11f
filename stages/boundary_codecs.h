#pragma once

#include <ATen/core/ScalarType.h>
#include <c10/core/Device.h>

#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "framework/codec/codecs.h"
#include "framework/codec/traffic.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/store/sample.h"
#include "framework/tensors/safetensors_writer.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// One boundary; the same at both ends, except for cache_folder.
struct BoundaryOptions {
  std::string name;             // in reports: "0.0>1.0"
  std::int64_t position = 0;    // of the chunk that sends activations; see pipeline_shape.h
  std::int64_t boundaries = 1;  // of the pipeline
  codec::CodecSettings codec;
  codec::CacheLimits cache;            // of each cache; entry_bytes and rows are not used
  std::filesystem::path cache_folder;  // of the caches' files
};

// Codecs of one end of a boundary: the encoder for what it sends, the decoder for what it receives.
// Evaluation has its own pair, so that it does not change the state of training's codecs.
struct BoundaryCodecs {
  std::unique_ptr<codec::Encoder> encoder;
  std::unique_ptr<codec::Decoder> decoder;
  std::unique_ptr<codec::Encoder> evaluation_encoder;
  std::unique_ptr<codec::Decoder> evaluation_decoder;
  // Caches of this end, by direction; owned by the encoder or the decoder, null without one.
  std::array<codec::ActivationCache*, 2> caches{};
  codec::MessageLimits limits;
};

// The end of the boundary that sends activations, or the one that receives them.
enum class BoundarySide : std::uint8_t { sender, receiver };

// What codecs depend on apart from the boundary's own options.
struct BoundarySetting {
  BoundarySide side = BoundarySide::sender;
  std::int64_t replica = 0;
  std::uint64_t seed = 0;
  codec::MessageLimits limits;
  int slices = 1;                               // of each row in training
  at::ScalarType dtype = at::kFloat;            // of the computation
  at::Device device = at::kCPU;                 // of the computation
  at::ScalarType evaluation_wire = at::kFloat;  // of the raw codec in evaluations
  codec::UseOrder order;
  store::Step last{};
  bool samples_return = false;  // the run uses some sample more than once
  // See ActivationCacheOptions.
  std::function<bool(store::Step)> saved_before = {};
  std::shared_ptr<tensors::SnapshotMemory> snapshot_memory = {};
  // See DirectionSettings::chooser.
  std::function<codec::ChooseWay(const codec::ChoiceLimits&)> chooser;
};

// Whether a codec caches samples. `order` must be set then.
bool uses_cache(const BoundaryOptions& options);

// The device on which a boundary encodes and decodes: that of the stage, if this build has kernels
// for it, otherwise the CPU. The bits are the same.
at::Device codec_device(at::Device compute);

BoundaryCodecs make_codecs(const BoundaryOptions& options, const BoundarySetting& setting);

// The prefix of this end's saved tensors: "cache/boundary-0/1/sent/" for activations of replica 1,
// "cache/boundary-0/1/received-gradients/" for the gradients of the same end.
std::string cache_prefix(const BoundaryOptions& options, const BoundarySetting& setting,
                         codec::Direction direction);

// Chooses the encoding of one direction of one boundary for codec `auto`: every kSampleEvery steps
// it compares the bandwidth of the link with the compute time of the stage in training steps.
//
// Threads: the encoding thread calls choose(); any thread calls the others.
class CodecChooser {
 public:
  static constexpr int kSampleEvery = 4;  // steps; measurements of a single step are too noisy

  struct Made {
    store::Step step{};  // the first step in this encoding, or the first with known costs
    codec::Decision decision;
  };

  // Link and clock outlive the chooser.
  CodecChooser(const codec::ChoiceLimits& limits, const net::Link& link, const WaitClock& waits);

  // Called before the first row of a step is encoded. `traffic`: of the encoder so far.
  codec::Choice choose(store::Step step, const codec::Traffic& traffic);

  codec::Choice now() const;
  // The first decision, and later ones that changed something, since the last call. For the events
  // of the run.
  std::vector<Made> take_decisions();

 private:
  struct Sample {
    double busy = 0;  // seconds of the compute thread so far
    store::Step step{};
    codec::Traffic traffic;
  };
  codec::Measured measure(const Sample& before, const Sample& after) const;

  const codec::ChoiceLimits limits_;
  const net::Link& link_;
  const WaitClock& waits_;
  std::optional<Sample> last_;  // used by the encoding thread only

  mutable Mutex mutex_;
  codec::Choice now_ STRAIT_GUARDED_BY(mutex_);
  bool decided_ STRAIT_GUARDED_BY(mutex_) = false;
  std::vector<Made> decisions_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::stages
