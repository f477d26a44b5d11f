#include "launcher/planner/planned_boundary.h"

#include "framework/codec/codecs.h"
#include "framework/net/wire_format.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "stages/link_tie.h"

namespace strait::planner {
namespace {

// Whether the boundary after this position has an end on this stage.
bool ends_at(std::size_t boundary, std::size_t stage, std::size_t stages) {
  return boundary % stages == stage || (boundary + 1) % stages == stage;
}

// The larger number of boundary ends, of the two stages of a boundary.
std::int64_t most_ends(std::size_t boundary, std::size_t boundaries, std::size_t stages) {
  std::int64_t most = 1;
  for (const std::size_t stage : {boundary % stages, (boundary + 1) % stages}) {
    std::int64_t ends = 0;
    for (std::size_t i = 0; i < boundaries; ++i) ends += ends_at(i, stage, stages) ? 1 : 0;
    most = std::max(most, ends);
  }
  return most;
}

codec::PayloadBytes payload_bytes(const codec::CodecSettings& settings, codec::Direction direction,
                                  const codec::PayloadLoad& load) {
  codec::DirectionSettings end;
  end.codec = settings;
  end.direction = direction;
  end.has_cache = caches_samples(settings, direction);
  return codec::codecs().named(settings.name(direction)).payload(end, load);
}

// `entries`: the slices of all rows. `ends`: number of boundary ends that share the memory of a
// process.
void plan_cache(const recipe::Recipe& recipe, std::int64_t entries, std::int64_t ends,
                PlannedBoundary& boundary) {
  const std::int64_t sharers = ends * boundary.cached_directions;
  codec::CacheLimits& cache = boundary.cache;
  cache.entry_bytes =
      kernels::entry_bytes(recipe.data.row / boundary.load.slices, boundary.load.width);
  cache.memory_bytes = recipe.codec.cache / sharers;
  cache.disk_bytes = recipe.codec.cache_disk / sharers;
  cache.rows = std::min(
      entries, cache.memory_bytes / cache.entry_bytes + cache.disk_bytes / cache.entry_bytes);
  if (!caches_samples(recipe.codec, codec::Direction::forward)) return;
  // Between two uses of a sample all others are used once, so no eviction policy gets more hits
  // from a cache of this size. Evicting the sample whose next use is farthest away achieves it.
  boundary.hits = static_cast<double>(cache.rows) / static_cast<double>(entries);
}

// Codecs of plugins are checked here; the reader of recipes has checked built-in ones.
void check_codec_of_gradients(const recipe::Recipe& recipe) {
  if (codec::codecs().named(recipe.codec.backward).for_gradients) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      "codec.backward = \"{}\" supports activations only; select another codec for gradients",
      recipe.codec.backward);
}

// Assumes full rows. A message is one frame of a link. Evaluation sends raw activations of whole
// rows.
void check_message_fits(const recipe::Recipe& recipe, BoundaryLoad load, bool sends_gradients) {
  load.tokens_per_row = static_cast<double>(recipe.data.row);
  codec::CodecSettings raw = recipe.codec;
  raw.forward = "raw";
  const bool evaluates = !recipe.data.eval.empty() || recipe.data.hold_out > 0;
  if (evaluates) load.slices = 1;
  const BoundaryBytes bytes = boundary_bytes(evaluates ? raw : recipe.codec, load);
  const double largest =
      std::max({bytes.first_forward, bytes.known_forward, sends_gradients ? bytes.backward : 0}) /
      static_cast<double>(load.slices);
  if (largest <= static_cast<double>(net::kMaxFrameBytes)) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "a micro-batch of {} rows of {} tokens sends {} over a boundary in one "
                        "message, which may have {}; set train.micro_batch to less",
                        load.rows, recipe.data.row, base::byte_text(std::llround(largest)),
                        base::byte_text(std::int64_t{net::kMaxFrameBytes}));
}

constexpr std::int64_t kSteps = 4;  // that are examined

// `raw`: bytes of a value that is not encoded.
double bytes_of_rows(const recipe::Recipe& recipe, const models::ModelDescription& model,
                     codec::Direction direction, double rows, double raw) {
  constexpr int kBfloat16Bits = 16;
  codec::DirectionSettings settings;
  settings.codec = stages::tied_row_codec(recipe.codec);
  settings.direction = direction;
  const std::string& codec = settings.codec.name(direction);
  const std::int64_t width = model.tied_parameters / model.vocabulary;
  const double values = rows * static_cast<double>(width);
  if (codec == "raw") return values * raw;
  if (settings.bits() == kBfloat16Bits) return values * 2;
  // The headers of messages are ignored, because they are small compared with the rows.
  return codec::codecs().named(codec).payload(settings, {1, rows, width}).first;
}

}  // namespace

bool caches_samples(const codec::CodecSettings& settings, codec::Direction direction) {
  const codec::CodecOffer& offer = codec::codecs().named(settings.name(direction));
  return offer.caching_of(direction) != codec::CodecOffer::Caching::none;
}

std::int64_t cached_directions(const codec::CodecSettings& settings, bool samples_return) {
  using Caching = codec::CodecOffer::Caching;
  const auto caching = [&](codec::Direction direction) {
    return codec::codecs().named(settings.name(direction)).caching_of(direction);
  };
  const std::array both = {caching(codec::Direction::forward), caching(codec::Direction::backward)};
  // All directions that may cache share the limits, as in stages.
  const bool any = std::ranges::any_of(both, [&](Caching one) {
    return one == Caching::always || (one == Caching::if_samples_repeat && samples_return);
  });
  return any ? std::ssize(both) - std::ranges::count(both, Caching::none) : 0;
}

BoundaryBytes boundary_bytes(const codec::CodecSettings& settings, const BoundaryLoad& load) {
  const auto slices = static_cast<double>(load.slices);
  const auto rows = static_cast<double>(load.rows);
  // Each slice but the first begins with a document, which may have ended before.
  const double documents = (load.documents_per_row + slices - 1) / slices;
  const double header = codec::header_bytes(rows, rows * documents);
  const codec::PayloadLoad payload{rows, rows * load.tokens_per_row / slices, load.width};
  const codec::PayloadBytes down = payload_bytes(settings, codec::Direction::forward, payload);
  const codec::PayloadBytes up = payload_bytes(settings, codec::Direction::backward, payload);
  // Counts every gradient as a value: which ones are close to their last value is known only in the
  // run.
  return {slices * (header + down.first), slices * (header + down.known),
          slices * (header + up.first)};
}

std::vector<PlannedBoundary> plan_boundaries(const recipe::Recipe& recipe,
                                             const models::ModelDescription& model,
                                             const std::vector<models::LayerRange>& ranges,
                                             const data::TokenFile& tokens, bool samples_return) {
  check_codec_of_gradients(recipe);
  BoundaryLoad load;
  load.rows = *recipe.train.micro_batch;
  load.slices = recipe.pipeline.slices.value_or(1);
  const auto rows = static_cast<double>(tokens.rows());
  // Of the replica that has most.
  const auto& shares = recipe.pipeline.rows;
  const std::int64_t replica_rows =
      shares && !shares->empty() ? tokens.rows() * std::ranges::max(*shares) / recipe.train.batch
                                 : tokens.rows() / recipe.pipeline.replicas;
  load.documents_per_row = 0;
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    const auto sample = static_cast<store::SampleId>(row);
    load.tokens_per_row += static_cast<double>(tokens.length(sample)) / rows;
    load.documents_per_row += static_cast<double>(tokens.document_lengths(sample).size()) / rows;
  }
  std::vector<PlannedBoundary> boundaries;
  const auto stages = static_cast<std::size_t>(recipe.pipeline.stages);
  for (std::size_t i = 0; stages > 1 && i + 1 < ranges.size(); ++i) {
    load.width = model.layers[static_cast<std::size_t>(ranges[i].last)].output_width;
    PlannedBoundary boundary;
    boundary.load = load;
    boundary.bytes = boundary_bytes(recipe.codec, load);
    const bool sends_gradients = ranges[i].last >= model.first_trained_layer();
    check_message_fits(recipe, load, sends_gradients);
    if (!sends_gradients) boundary.bytes.backward = 0;
    boundary.cached_directions = cached_directions(recipe.codec, samples_return);
    if (boundary.cached_directions > 0) {
      plan_cache(recipe, replica_rows * load.slices, most_ends(i, ranges.size() - 1, stages),
                 boundary);
    }
    boundaries.push_back(boundary);
  }
  return boundaries;
}

std::int64_t cache_bytes_of(const std::vector<PlannedBoundary>& boundaries, std::size_t stage,
                            std::size_t stages) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    if (ends_at(i, stage, stages)) {
      sum += boundaries[i].cached_directions * boundaries[i].cache.used_memory();
    }
  }
  return sum;
}

std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const data::PreparedData& train) {
  const recipe::Recipe& recipe = plan.recipe;
  if (!model.tied || !model.tied_trained || recipe.pipeline.stages == 1) return std::nullopt;
  stages::BatchOptions batch;
  batch.seed = static_cast<std::uint64_t>(recipe.seed);
  batch.replicas = recipe.pipeline.replicas;
  batch.micro_batch_rows = plan.micro_batch_rows();
  batch.micro_batches = plan.micro_batches;
  for (std::uint32_t replica = 0; replica < plan.replica_rows.size(); ++replica) {
    batch.micro_batches_by_replica.push_back(plan.micro_batches_of(replica));
  }
  const auto own = static_cast<int>(plan.micro_batches_of(0));
  batch.shuffle = recipe.data.shuffle;
  const stages::BatchSource source(train.tokens, nullptr, batch);
  const std::int64_t steps = std::min(plan.steps, kSteps);
  std::size_t rows = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    rows += stages::looked_up_rows(source, {store::Step{step}, true}, own).tokens.size();
  }
  const double mean =
      static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(steps, 1));
  const bool narrow = recipe.model.dtype == recipe::Dtype::bfloat16;
  return TieBytes{bytes_of_rows(recipe, model, codec::Direction::backward, mean, 4),
                  bytes_of_rows(recipe, model, codec::Direction::forward, mean, narrow ? 2 : 4)};
}

void plan_tie_links(plan::Plan& plan, const TieBytes& bytes) {
  const auto last_stage = static_cast<std::uint32_t>(plan.recipe.pipeline.stages - 1);
  for (const plan::Plan::Process& first : plan.processes) {
    if (first.name.stage != 0) continue;
    plan::Plan::Link link;
    link.use = plan::Plan::Use::tie;
    link.connects = first.name;
    link.listens = {last_stage, first.name.replica};
    link.name = fmt::format("tie {}>{}", link.connects.text(), link.listens.text());
    link.forward_bytes = std::llround(bytes.gradients);
    link.backward_bytes = std::llround(bytes.values);
    link.first_forward_bytes = link.forward_bytes;
    plan.links.push_back(link);
  }
}

}  // namespace strait::planner
