#include "tests/framework/codec/two_ends.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "framework/store/store_error.h"
#include "kernels/random.h"

namespace strait::codec {

Entries entries_of(const ActivationCache& cache) {
  const SavedCache saved = save(cache);
  const at::Tensor& index = saved.at("index");
  std::vector<const std::byte*> slots;
  for (int i = 0; saved.contains("slab." + std::to_string(i)); ++i) {
    const at::Tensor& slab = saved.at("slab." + std::to_string(i));
    for (std::int64_t row = 0; row < slab.size(0); ++row) {
      slots.push_back(static_cast<const std::byte*>(slab.const_data_ptr()) + row * slab.size(1));
    }
  }
  Entries entries;
  for (std::int64_t i = 0; i < index.size(0); ++i) {
    const auto* row = index.const_data_ptr<std::int64_t>() + i * index.size(1);
    const std::byte* from = slots.at(static_cast<std::size_t>(row[1]));
    const auto size = kernels::entry_bytes(row[2], cache.options().width);
    entries[row[0]] = Entry(from, from + size);
  }
  return entries;
}

SavedCache save(const ActivationCache& cache) {
  SavedCache saved;
  for (const tensors::NamedTensor& part : cache.saved("")) saved[part.name] = part.tensor.clone();
  return saved;
}

void restore(ActivationCache& cache, const SavedCache& saved) {
  cache.restore("", [&](const std::string& name) { return saved.at(name); });
}

bool flip_bit(ActivationCache& cache, std::int64_t sample, std::size_t bit) {
  // Through the tensors that share the cache's memory, so that it is no visit.
  std::map<std::string, at::Tensor> shared;
  for (const tensors::NamedTensor& part : cache.saved("")) shared[part.name] = part.tensor;
  const at::Tensor& index = shared.at("index");
  for (std::int64_t i = 0; i < index.size(0); ++i) {
    if (index[i][0].item<std::int64_t>() != sample) continue;
    std::int64_t slot = index[i][1].item<std::int64_t>();
    const auto size = static_cast<std::size_t>(
        kernels::entry_bytes(index[i][2].item<std::int64_t>(), cache.options().width));
    for (int slab = 0;; ++slab) {
      const at::Tensor& tensor = shared.at("slab." + std::to_string(slab));
      if (slot >= tensor.size(0)) {
        slot -= tensor.size(0);
        continue;
      }
      auto* bytes = static_cast<std::uint8_t*>(tensor.mutable_data_ptr()) + slot * tensor.size(1);
      bytes[bit / 8 % size] ^= static_cast<std::uint8_t>(1U << bit % 8);
      return true;
    }
  }
  return false;
}

UseOrder shuffled_epochs(std::int64_t samples, std::int64_t per_step, std::uint64_t seed) {
  return [=](store::Step step) {
    std::vector<store::SampleId> visits;
    for (std::int64_t i = 0; i < per_step; ++i) {
      const std::int64_t visit = number(step) * per_step + i;
      std::vector<std::int64_t> epoch(static_cast<std::size_t>(samples));
      std::iota(epoch.begin(), epoch.end(), 0);
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(visit / samples));
      std::shuffle(epoch.begin(), epoch.end(), random);
      const store::SampleId sample{epoch[static_cast<std::size_t>(visit % samples)]};
      // A step that spans two epochs may meet a sample again; it is visited once.
      if (std::find(visits.begin(), visits.end(), sample) == visits.end()) visits.push_back(sample);
    }
    return visits;
  };
}

TwoEnds::TwoEnds(const SampleEncoderOptions& options,
                 const std::optional<ActivationCacheOptions>& cache, at::ScalarType result) {
  const auto make_cache = [&] {
    return cache ? std::make_unique<ActivationCache>(*cache) : std::unique_ptr<ActivationCache>{};
  };
  encoder_ = std::make_unique<SampleEncoder>(options, make_cache());
  decoder_ = std::make_unique<SampleDecoder>(result, make_cache());
}

Passed pass(Encoder& encoder, Decoder& decoder, const Batch& batch) {
  net::Frame frame;
  write_header(batch.header, frame);
  encoder.encode(batch.header, batch.values, frame);
  const ReadTensor read = read_header(frame);
  Decoded decoded = decoder.decode(read.header, read.payload);
  Passed passed{decoded.values, decoded.missing.size(), {read.payload.begin(), read.payload.end()}};
  if (decoded.missing.empty()) return passed;

  TensorHeader request = batch.header;
  request.kind = Kind::resend;
  request.rows.rows.clear();
  for (const std::int64_t place : decoded.missing) {
    request.rows.rows.push_back(batch.header.rows.rows[static_cast<std::size_t>(place)]);
  }
  net::Frame asked;
  write_header(request, asked);
  TensorHeader answer = read_header(asked).header;
  answer.kind = Kind::whole;
  net::Frame answered;
  write_header(answer, answered);
  encoder.encode_whole(answer, answered);
  const ReadTensor whole = read_header(answered);
  decoder.complete(whole.header, whole.payload, decoded.missing, decoded.values);
  return passed;
}

at::Tensor TwoEnds::pass(const Batch& batch) {
  const Passed passed = codec::pass(*encoder_, *decoder_, batch);
  last_missing_ = passed.missing;
  last_payload_ = passed.payload.size();
  return passed.values;
}

void TwoEnds::lose(const Batch& batch) {
  net::Frame frame;
  write_header(batch.header, frame);
  encoder_->encode(batch.header, batch.values, frame);
}

TensorHeader full_rows(store::Step step, std::int32_t micro_batch, std::int64_t tokens,
                       std::int64_t width, const std::vector<std::int64_t>& samples) {
  TensorHeader header;
  header.step = step;
  header.micro_batch = micro_batch;
  header.width = width;
  header.rows.padded_length = tokens;
  for (const std::int64_t sample : samples) {
    header.rows.rows.push_back(Row{store::SampleId{sample}, {tokens}});
  }
  return header;
}

at::Tensor random_values(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, kernels::keyed_generator(seed, at::kCPU));
}

}  // namespace strait::codec
