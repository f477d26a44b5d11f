#include "framework/sync/packet.h"

#include <cmath>

#include "framework/sync/bit_stream.h"
#include "framework/sync/block_models.h"
#include "framework/sync/grid.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// ---- the sections of a packet; PACKET.md has the bytes

constexpr std::size_t kPacketHeaderBytes = 6;

// The header describes the values that are not dense.
struct PacketHeader {
  int bits = 0;
  std::uint32_t share = 0;  // of 255, that is sent; only the coder's initial guess
  float threshold = 0;      // 0: none is sent
  float step = 0;

  // The fields as they are sent, and a step that suits the mean. `least`: of the sent magnitudes.
  static PacketHeader of(int bits, double share, float least, double mean);

  double guess() const;  // the share, within the coder's limits
  Grid grid() const { return grid_above(threshold, step, bits); }
  // Bits of a value that no model predicts: its sign, and the low bits of its level.
  unsigned plain_bits() const { return 1 + grid().plain_bits; }
};

// Consecutive blocks of a packet that share a grid: all of one dense piece, or some that are not
// dense.
struct PacketRun {
  std::size_t first = 0;  // block
  std::size_t count = 0;  // blocks
  bool dense = false;
  Grid grid;
  std::size_t first_value = 0;  // index among the values that are sent
  std::size_t values = 0;       // that are sent
  // Nothing is coded of a run of zeros.
  bool all_zero() const { return grid.threshold == 0; }
  bool has_levels() const { return !all_zero() && grid.most_level > 0; }
};

template <class Value>
std::span<Value> blocks_within(std::span<Value> by_block, const PacketRun& run) {
  return by_block.subspan(run.first, run.count);
}

template <class Value>
std::span<Value> values_within(std::span<Value> by_value, const PacketRun& run) {
  return by_value.subspan(run.first_value, run.values);
}

// The version of the packet format, in the upper half of the first byte.
constexpr std::uint32_t kFormat = 2;
constexpr double kShares = 255;

// The share of dense values that are not read as zero, at four bits: the initial guess.
constexpr double kDenseShare = 0.85;
constexpr unsigned kStepBits = 13;
static_assert(kStepCodes == 1U << kStepBits);

// The models of the blocks that are not dense, and of the dense ones.
class Models {
 public:
  Models(const PacketHeader& header, coding::SymbolModel::End end)
      : sparse_(header.guess(), header.grid().decay, end),
        dense_(kDenseShare, grid_around_zero(0, header.bits).decay, end) {}
  BlockModels& of(const PacketRun& run) { return run.dense ? dense_ : sparse_; }

 private:
  BlockModels sparse_;
  BlockModels dense_;
};

float take_step(coding::LaneReader& reader, std::size_t lane) {
  const std::uint32_t code = reader.peek(lane, kStepBits);
  reader.take(lane, code, 1, kStepBits);
  const float step = step_of(code);
  if (step_is_sound(step)) return step;
  throw SyncError(SyncError::Kind::corrupt, "a packet has an invalid step of a dense tensor");
}

// The number of values that a run's patterns select.
std::size_t checked_values(std::span<const Block> blocks, std::span<const std::uint16_t> patterns) {
  std::size_t values = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    values += values_in(patterns[b]);
    if (patterns[b] >> blocks[b].count == 0) continue;
    throw SyncError(SyncError::Kind::corrupt, "a packet has values beyond the {} of a block",
                    blocks[b].count);
  }
  return values;
}

PacketHeader PacketHeader::of(int bits, double share, float least, double mean) {
  PacketHeader header;
  header.bits = bits;
  if (least == 0) return header;
  header.share = static_cast<std::uint32_t>(std::lround(kShares * share));
  header.threshold = threshold_below(least);
  header.step = step_of(step_code(step_above(header.threshold, mean, bits)));
  return header;
}

// Away from 0 and 1, where the coder's initial frequencies would be infinite or zero.
double PacketHeader::guess() const { return std::clamp(share / kShares, 0.004, 0.996); }

void append_packet_header(const PacketHeader& header, net::Frame& out) {
  const std::uint32_t threshold = std::bit_cast<std::uint32_t>(header.threshold) >> 16U;
  const std::uint32_t step = step_code(header.step);
  for (const std::uint32_t byte : {kFormat << 4U | static_cast<std::uint32_t>(header.bits),
                                   header.share, threshold, threshold >> 8U, step, step >> 8U}) {
    out.push_back(std::byte(byte));
  }
}

// SyncError (corrupt) if the bytes do not begin with a valid header.
PacketHeader read_packet_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kPacketHeaderBytes) {
    throw SyncError(SyncError::Kind::corrupt, "a packet has {} bytes, its header alone has {}",
                    bytes.size(), kPacketHeaderBytes);
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(bytes[at]); };
  PacketHeader header;
  header.bits = static_cast<int>(byte(0) & 15U);
  header.share = byte(1);
  header.threshold = std::bit_cast<float>((byte(2) | byte(3) << 8U) << 16U);
  const std::uint32_t step = byte(4) | byte(5) << 8U;
  // A header of zeros means that nothing is sent of what is not dense. Minus zero is not allowed,
  // so that each packet has one encoding.
  const bool all_zero =
      header.threshold == 0 && step == 0 && header.share == 0 && !std::signbit(header.threshold);
  if (step < kStepCodes) header.step = step_of(step);
  if (byte(0) >> 4U != kFormat || header.bits < 1 || header.bits > 8 || step >= kStepCodes ||
      !step_is_sound(header.step) || !(all_zero || threshold_is_sound(header.threshold))) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a packet's header has an invalid format, threshold or step");
  }
  return header;
}

// `grid`: of the runs that are not dense.
std::vector<PacketRun> packet_runs(std::span<const Block> blocks, const Grid& grid) {
  std::vector<PacketRun> runs;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    const bool same = b > 0 && block.dense == blocks[b - 1].dense &&
                      (!block.dense || block.piece == blocks[b - 1].piece);
    if (!same) runs.push_back({.first = b, .dense = block.dense, .grid = grid});
    ++runs.back().count;
  }
  return runs;
}

// The entropy-coded symbols of a packet: the grids of dense runs, then which values of each block
// are sent, then the upper bits of their levels. One after the other, so that each is a loop
// without unpredictable branches.
void put_symbols(const PacketHeader& header, std::span<const PacketRun> runs,
                 std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                 coding::LaneWriter& writer) {
  writer.reserve(2 * patterns.size() + 2 * levels.size() + runs.size());
  Models models(header, coding::SymbolModel::End::writer);
  for (const PacketRun& run : runs) {
    if (run.dense) writer.put(run.first % coding::kLanes, step_code(run.grid.step), 1, kStepBits);
    if (run.all_zero()) continue;
    models.of(run).put_classes(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.all_zero()) put_patterns(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.has_levels()) continue;
    models.of(run).put_levels(writer, run.first_value, blocks_within(patterns, run),
                              values_within(levels, run), run.grid);
  }
}

// Fills in the patterns (zero before), the levels, and the grids and value counts of the runs.
// SyncError (corrupt) if no writer makes such symbols.
void take_symbols(const PacketHeader& header, std::span<const Block> blocks,
                  coding::LaneReader& reader, std::span<PacketRun> runs,
                  std::span<std::uint16_t> patterns, std::vector<std::int32_t>& levels) {
  Models models(header, coding::SymbolModel::End::reader);
  std::vector<std::uint8_t> classes(blocks.size());
  // In the order of put_symbols(). The patterns must be known before the levels: they decide how
  // many levels there are.
  for (PacketRun& run : runs) {
    if (run.dense) {
      run.grid = grid_around_zero(take_step(reader, run.first % coding::kLanes), header.bits);
    }
    if (run.all_zero()) continue;
    models.of(run).take_classes(reader, run.first, blocks_within(std::span(classes), run));
  }
  std::size_t values = 0;
  for (PacketRun& run : runs) {
    run.first_value = values;
    if (run.all_zero()) continue;
    const auto its = blocks_within(patterns, run);
    take_patterns(reader, run.first, blocks_within(std::span<const std::uint8_t>(classes), run),
                  its);
    run.values = checked_values(blocks_within(blocks, run), its);
    values += run.values;
  }
  levels.assign(values, 0);
  for (const PacketRun& run : runs) {
    if (!run.has_levels()) continue;
    models.of(run).take_levels(reader, run.first_value,
                               blocks_within(std::span<const std::uint16_t>(patterns), run),
                               values_within(std::span(levels), run), run.grid);
  }
}

// ---- values

constexpr auto kBlockValues = static_cast<std::size_t>(kGrain);

// The step of a dense piece: from the mean magnitude of its blocks.
float dense_step(std::span<const Block> blocks, std::span<const float> values, int bits) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    count += blocks[b].count;
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      sum += static_cast<double>(std::abs(values[b * kBlockValues + i]));
    }
  }
  const double mean = sum / static_cast<double>(count);
  if (mean < static_cast<double>(kLeastMagnitude)) return 0;
  return step_of(step_code(step_around_zero(mean, bits)));
}

// Selects the values of a dense block that are not read as zero.
std::uint16_t pick_dense(std::span<const float> values, float threshold,
                         std::vector<float>& picked) {
  std::uint32_t pattern = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    if (std::abs(values[i]) < threshold) continue;
    pattern |= 1U << i;
    picked.push_back(values[i]);
  }
  return static_cast<std::uint16_t>(pattern);
}

// Fills in the patterns and values that are sent, and the grids and value ranges of the runs.
void pick(std::span<const Block> blocks, std::span<const float> values, int bits, TopValues& top,
          std::vector<PacketRun>& runs, SparseValues& sent) {
  // The common case, without a copy of the values.
  if (runs.size() == 1 && !runs[0].dense) {
    std::swap(sent.patterns, top.patterns);
    std::swap(sent.values, top.values);
    sent.patterns.resize(blocks.size());
    runs[0].values = sent.values.size();
    return;
  }
  sent.patterns.assign(blocks.size(), 0);
  sent.values.clear();
  auto next_pattern = top.patterns.begin();
  auto next_value = top.values.begin();
  for (PacketRun& run : runs) {
    run.first_value = sent.values.size();
    const auto patterns = blocks_within(std::span(sent.patterns), run);
    if (run.dense) {
      const auto its = values.subspan(run.first * kBlockValues, run.count * kBlockValues);
      run.grid = grid_around_zero(dense_step(blocks_within(blocks, run), its, bits), bits);
      for (std::size_t b = 0; b < run.count && !run.all_zero(); ++b) {
        patterns[b] = pick_dense(its.subspan(b * kBlockValues, kBlockValues), run.grid.threshold,
                                 sent.values);
      }
    } else if (!run.all_zero()) {
      std::size_t count = 0;
      for (std::uint16_t& pattern : patterns) {
        pattern = *next_pattern++;
        count += values_in(pattern);
      }
      const auto end = next_value + static_cast<std::ptrdiff_t>(count);
      sent.values.insert(sent.values.end(), next_value, end);
      next_value = end;
    }
    run.values = sent.values.size() - run.first_value;
  }
}

// Computes the levels; the values become what readers decode.
void quantise(const Grid& all, std::span<float> values, std::span<std::int32_t> levels) {
  const Grid grid = all;  // a local copy, so that the compiler keeps it in registers
  if (grid.step == 0 || grid.most_level == 0) {
    const float mean = grid.value(0);
    for (float& value : values) value = std::copysign(mean, value);
    std::ranges::fill(levels, 0);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) levels[i] = grid.level(std::abs(values[i]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::copysign(grid.value(levels[i]), values[i]);
  }
}

std::uint32_t sign_of(float value) { return std::bit_cast<std::uint32_t>(value) >> 31U; }

void put_plain(std::span<const std::int32_t> levels, std::span<const float> values, unsigned bits,
               std::vector<std::byte>& plain) {
  PlainBitsWriter writer(plain, bits * values.size());
  std::size_t i = 0;
  // Signs without level bits: 32 at a time.
  constexpr std::size_t kMany = 32;
  for (; bits == 1 && i + kMany <= values.size(); i += kMany) {
    std::uint32_t signs = 0;
    for (std::size_t j = 0; j < kMany; ++j) signs |= sign_of(values[i + j]) << j;
    writer.put(signs, kMany);
  }
  const std::uint32_t mask = (1U << bits) - 1;
  for (; i < values.size(); ++i) {
    writer.put((static_cast<std::uint32_t>(levels[i]) << 1U | sign_of(values[i])) & mask, bits);
  }
  writer.finish();
}

// Reads signs and the low bits of levels; false: other bits follow them.
bool take_plain(std::span<const std::byte> plain, unsigned bits, std::span<std::int32_t> levels,
                std::span<float> values) {
  PlainBitsReader reader(plain);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::uint32_t word = reader.take(bits);
    levels[i] |= static_cast<std::int32_t>(word >> 1U);
    values[i] = std::bit_cast<float>(word << 31U);
  }
  return reader.ends_in_zeros();
}

}  // namespace

void write_packet(std::span<const Block> blocks, std::span<const float> values,
                  const PacketSettings& settings, PacketScratch& scratch, net::Frame& out,
                  SparseValues& sent) {
  sent.patterns.clear();
  sent.values.clear();
  if (blocks.empty()) return;
  TopValues& top = scratch.top;
  select_top(blocks, values, settings.top, top);
  const PacketHeader header = PacketHeader::of(settings.bits, top.share, top.least, top.mean);
  append_packet_header(header, out);
  std::vector<PacketRun> runs = packet_runs(blocks, header.grid());
  pick(blocks, values, header.bits, top, runs, sent);
  scratch.levels.resize(sent.values.size());
  // `sent` becomes what readers decode, so that both ends compute with the same values.
  for (const PacketRun& run : runs) {
    quantise(run.grid, values_within(std::span(sent.values), run),
             values_within(std::span(scratch.levels), run));
  }
  put_symbols(header, runs, sent.patterns, scratch.levels, scratch.writer);
  put_plain(scratch.levels, sent.values, header.plain_bits(), scratch.plain);
  scratch.writer.finish(scratch.plain, out);
}

void read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes,
                 PacketScratch& scratch, SparseValues& sent) {
  sent.patterns.assign(blocks.size(), 0);
  sent.values.clear();
  if (blocks.empty() && bytes.empty()) return;
  const PacketHeader header = read_packet_header(bytes);
  std::vector<PacketRun> runs = packet_runs(blocks, header.grid());
  coding::LaneReader reader(bytes.subspan(kPacketHeaderBytes));
  std::vector<std::int32_t>& levels = scratch.levels;
  take_symbols(header, blocks, reader, runs, sent.patterns, levels);
  const std::size_t bits = header.plain_bits() * levels.size();
  sent.values.resize(levels.size());
  if (!reader.finish((bits + 7) / 8, scratch.plain) ||
      !take_plain(scratch.plain, header.plain_bits(), levels, sent.values)) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a packet has more or fewer bytes than its values take");
  }
  for (const PacketRun& run : runs) {
    for (std::size_t i = run.first_value; i < run.first_value + run.values; ++i) {
      sent.values[i] = std::copysign(run.grid.value(levels[i]), sent.values[i]);
    }
  }
}

void add_to(std::span<float> values, const SparseValues& sent, float factor) {
  const float* next = sent.values.data();
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    float* block = values.data() + b * kBlockValues;
    // Whole blocks are frequent at high shares, and this loop is vectorised.
    if (sent.patterns[b] == kWholePattern) {
      for (std::size_t i = 0; i < kBlockValues; ++i) block[i] += factor * next[i];
      next += kBlockValues;
      continue;
    }
    for (std::uint32_t rest = sent.patterns[b]; rest != 0; rest &= rest - 1) {
      block[std::countr_zero(rest)] += factor * *next++;
    }
  }
}

}  // namespace strait::sync
