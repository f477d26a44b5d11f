#include "framework/codec/codecs.h"

#include "framework/codec/raw.h"
#include "framework/codec/sample_decoder.h"
#include "framework/codec/sample_encoder.h"
#include "framework/codec/transform_decoder.h"
#include "framework/codec/transform_encoder.h"

namespace strait::codec {
namespace {

using Cache = CodecOffer::Cache;
using Encoding = Choice::Encoding;

std::unique_ptr<Encoder> raw_encoder(const DirectionSettings& settings, Cache) {
  return std::make_unique<RawEncoder>(scalar_type(settings.codec.wire_dtype));
}

std::unique_ptr<Decoder> raw_decoder(const DirectionSettings& settings, Cache) {
  return std::make_unique<RawDecoder>(scalar_type(settings.codec.wire_dtype), settings.result);
}

PayloadBytes raw_payload(const DirectionSettings& settings, const PayloadLoad& load) {
  const double bytes = load.tokens * static_cast<double>(load.width) *
                       static_cast<double>(bytes_of(settings.codec.wire_dtype));
  return {bytes, bytes};
}

SampleEncoderOptions sample_options(const DirectionSettings& settings, const Choice& choice) {
  SampleEncoderOptions options;
  options.choice = choice;
  options.group = static_cast<int>(settings.codec.group);
  options.key = settings.key;
  options.direction = settings.direction;
  options.device = settings.device;
  return options;
}

// For rows without a base. Gradients in four bits measurably lose nothing.
int first_bits(const DirectionSettings& settings) {
  constexpr int kLeastOfGradients = 4;
  if (settings.direction == Direction::forward) return static_cast<int>(settings.codec.first_bits);
  return std::max(settings.bits(), kLeastOfGradients);
}

template <Encoding encoding>
std::unique_ptr<Encoder> sample_encoder(const DirectionSettings& settings, Cache cache) {
  const Choice choice{encoding, settings.bits(), first_bits(settings)};
  return std::make_unique<SampleEncoder>(sample_options(settings, choice), std::move(cache));
}

ChoiceLimits choice_limits(const DirectionSettings& settings, bool has_cache) {
  // `bits` limits changes, which are small. Values without a base are whole activations: below four
  // bits their error is far larger than the user accepted for changes.
  constexpr int kLeastOfWholeValues = 4;
  ChoiceLimits limits;
  limits.least_bits = settings.bits();
  limits.first_bits = static_cast<int>(settings.codec.first_bits);
  limits.fixed_bits = has_cache ? std::max(settings.bits(), kLeastOfWholeValues) : settings.bits();
  limits.usual_bits = std::max(settings.bits(), CodecSettings().bits(settings.direction));
  limits.has_cache = has_cache;
  limits.group = static_cast<int>(settings.codec.group);
  // The cost is shared by all directions of all boundaries.
  limits.most_cost /= 2 * static_cast<double>(settings.boundaries);
  return limits;
}

std::unique_ptr<Encoder> auto_encoder(const DirectionSettings& settings, Cache cache) {
  const ChoiceLimits limits = choice_limits(settings, cache != nullptr);
  SampleEncoderOptions options = sample_options(settings, first_choice(limits));
  if (settings.chooser) options.choose = settings.chooser(limits);
  return std::make_unique<SampleEncoder>(std::move(options), std::move(cache));
}

std::unique_ptr<Decoder> sample_decoder(const DirectionSettings& settings, Cache cache) {
  return std::make_unique<SampleDecoder>(settings.result, std::move(cache), settings.device);
}

std::unique_ptr<Encoder> transform_encoder(const DirectionSettings& settings, Cache cache) {
  TransformEncoderOptions options;
  options.direction = settings.direction;
  options.bits = settings.bits();
  options.first_bits = static_cast<int>(settings.codec.first_bits);
  options.group = static_cast<int>(settings.codec.group);
  options.key = settings.key;
  return std::make_unique<TransformEncoder>(options, std::move(cache));
}

std::unique_ptr<Decoder> transform_decoder(const DirectionSettings& settings, Cache cache) {
  return std::make_unique<TransformDecoder>(settings.result, std::move(cache));
}

// Uses the encoder's own sizes, with average rows and tokens in place of counted ones.
double quantised(const DirectionSettings& settings, const PayloadLoad& load, int bits,
                 RowBase base) {
  const RowHeader row = row_header(base, bits, settings.direction);
  const int group = static_cast<int>(settings.codec.group);
  return static_cast<double>(kPayloadHeaderBytes) +
         load.rows * static_cast<double>(row_header_bytes(base)) +
         load.tokens * static_cast<double>(data_bytes(row, group, 1, load.width));
}

PayloadBytes fixed_payload(const DirectionSettings& settings, const PayloadLoad& load) {
  const double bytes = quantised(settings, load, settings.bits(), RowBase::none);
  return {bytes, bytes};
}

PayloadBytes delta_payload(const DirectionSettings& settings, const PayloadLoad& load) {
  return {quantised(settings, load, first_bits(settings), RowBase::fresh),
          quantised(settings, load, settings.bits(), RowBase::entry)};
}

// What it takes depends on the data. These are the bits a value of RESULTS.md, for the same errors.
PayloadBytes transform_payload(const DirectionSettings& settings, const PayloadLoad& load) {
  PayloadBytes groups = delta_payload(settings, load);
  constexpr double kOfGroups = 0.5;
  return {kOfGroups * groups.first, kOfGroups * groups.known};
}

// A forecast with the fewest bits: what auto chooses depends on measurements that a plan does not
// have.
PayloadBytes auto_payload(const DirectionSettings& settings, const PayloadLoad& load) {
  return settings.has_cache ? delta_payload(settings, load) : fixed_payload(settings, load);
}

}  // namespace

Catalogue<CodecOffer>& codecs() {
  using Caching = CodecOffer::Caching;
  static Catalogue<CodecOffer> all(
      "codec",
      {{"raw", Caching::none, true, raw_encoder, raw_decoder, raw_payload},
       {"fixed", Caching::none, true, sample_encoder<Encoding::fixed>, sample_decoder,
        fixed_payload},
       {"delta", Caching::always, true, sample_encoder<Encoding::delta>, sample_decoder,
        delta_payload, Caching::always},
       {"transform", Caching::always, true, transform_encoder, transform_decoder, transform_payload,
        Caching::none, true, 1e8},
       {"auto", Caching::if_samples_repeat, true, auto_encoder, sample_decoder, auto_payload}});
  return all;
}

}  // namespace strait::codec
