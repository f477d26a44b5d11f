#include "framework/sync/packet.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "framework/sync/bit_stream.h"
#include "framework/sync/block_pattern.h"
#include "framework/sync/packet_format.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

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

void add_to(std::span<float> values, const SparseValues& sent) {
  const float* next = sent.values.data();
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    float* block = values.data() + b * kBlockValues;
    // Whole blocks are frequent at high shares, and this loop is vectorised.
    if (sent.patterns[b] == kWholePattern) {
      for (std::size_t i = 0; i < kBlockValues; ++i) block[i] += next[i];
      next += kBlockValues;
      continue;
    }
    for (std::uint32_t rest = sent.patterns[b]; rest != 0; rest &= rest - 1) {
      block[std::countr_zero(rest)] += *next++;
    }
  }
}

}  // namespace strait::sync
