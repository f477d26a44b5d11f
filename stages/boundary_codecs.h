#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/codecs.h"
#include "framework/tensors/safetensors_writer.h"
#include "stages/boundary_options.h"

namespace strait::stages {

// The codecs of one end of a boundary: what leaves is encoded, what arrives is decoded. Evaluation
// has its own pair, so that it never touches the state that training's codecs carry.
struct BoundaryCodecs {
  std::unique_ptr<codec::Encoder> encoder;
  std::unique_ptr<codec::Decoder> decoder;
  std::unique_ptr<codec::Encoder> evaluation_encoder;
  std::unique_ptr<codec::Decoder> evaluation_decoder;
  // What this end remembers of activations, owned by the encoder or the decoder; null where it
  // remembers none.
  codec::ActivationCache* cache = nullptr;
};

// Which end of the boundary: the one that sends activations down, or the one that gets them.
enum class BoundarySide : std::uint8_t { sender, receiver };

// What codecs are made by beside the boundary's own options.
struct BoundarySetting {
  BoundarySide side = BoundarySide::sender;
  std::int64_t replica = 0;
  std::uint64_t seed = 0;
  std::int64_t width = 0;                       // of what crosses
  std::int64_t row_tokens = 0;                  // of the longest row
  at::ScalarType dtype = at::kFloat;            // of what is computed
  at::ScalarType wire = at::kFloat;             // of raw in training
  at::ScalarType evaluation_wire = at::kFloat;  // likewise in evaluation
  codec::VisitOrder order;
  store::Step last{};
  bool samples_return = false;  // the run visits some sample more than once
  // As CodecSettings has it.
  std::function<codec::ChooseWay(const codec::ChoiceLimits&)> chooser;
};

// Whether the codec of the activations keeps what samples were like: then order and width have to
// be set.
bool remembers_samples(const BoundaryOptions& options);

BoundaryCodecs make_codecs(const BoundaryOptions& options, const BoundarySetting& setting);

// What the names of this end's saved tensors begin with: "cache/boundary-0/1/sent/" for replica 1.
std::string cache_prefix(const BoundaryOptions& options, const BoundarySetting& setting);

}  // namespace strait::stages
