// Indices that were drawn at random are not sent: the receiver draws them again.
#include <gtest/gtest.h>

#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "unit/bits.h"
#include "unit/frames.h"
#include "unit/sifters.h"
#include "unit/walk.h"

namespace sparsewire::drawn_indices_test {
namespace {

TEST(DrawnIndices, AreNotSent) {
  constexpr std::size_t kFixed = 24 + 4 + 29;  // header, checksum, seed without units
  for (const char* codec : {"auto", "seed"}) {
    for (const char* spec : {"randomk:k=300", "randomk:k=300,shared=true", "randomk:k=300,seed=8"}) {
      SCOPED_TRACE(std::string(codec) + " of " + spec);
      for (const std::uint64_t n : {301U, 500U, 600U, 601U, 10'000U, 1'000'000U}) {
        SCOPED_TRACE(n);
        const SparseVector sent = sent_by(spec, {.layout = n, .rank = 3, .ranks = 5, .seed = 1, .first_step = 17});
        for (const auto& [format, bytes] : {std::pair{"f32", 4U}, {"bf16", 2U}}) {
          const Bytes frame = encoded(std::string(codec) + ":values=" + format, sent);
          // `auto` may find a shorter code if almost all entries are drawn.
          ASSERT_LE(frame.size(), kFixed + 300 * bytes);
          if (codec == std::string_view("seed")) {
            ASSERT_EQ(frame.size(), kFixed + 300 * bytes);
          }
          SparseVector decoded;
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          ASSERT_EQ(decoded.indices, sent.indices);
        }
      }
    }
  }
}

TEST(DrawnIndices, AreNotSentInLayerScope) {
  const Layout layout = layout_of({500, 0, 70'000, 64, 1, 30'000});
  for (const char* spec : {"randomk:ratio=0.05", "randomk:ratio=0.8", "randomk:ratio=0.05,shared=true"}) {
    SCOPED_TRACE(spec);
    for (const Role role : {Role::worker, Role::server}) {
      const SparseVector sent =
          sent_by(spec, {.layout = layout, .scope = Scope::layer, .rank = 3, .ranks = 5, .seed = 1, .role = role});
      for (const char* codec : {"auto", "seed"}) {
        const Bytes frame = encoded(codec, sent);
        EXPECT_LE(frame.size(), 28 + 4 * sent.size() + 29 + 8 * 6);
        SparseVector decoded;
        ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
        ASSERT_TRUE(same_bits(sent, decoded));
      }
    }
  }
}

TEST(DrawnIndices, AreSentIfSomeEntriesWereNotDrawn) {
  const SparseVector sent = sent_by("randomk:ratio=0.05,dense_below=100", {.layout = layout_of({50, 7000, 64})});
  SparseVector decoded;
  ASSERT_EQ(decode(encoded("auto", sent), decoded), DecodeStatus::ok);
  ASSERT_TRUE(same_bits(sent, decoded));
  Bytes frame;
  EXPECT_THROW(Codec("seed").encode(sent, frame), UsageError);
}

TEST(DrawnIndices, AreRequiredBySeed) {
  Bytes frame;
  for (const std::size_t count : {0U, 1U, 100U}) {
    const SparseVector vector = vector_of(1000, every_nth(count, 3, 2), 1);
    EXPECT_THROW(Codec("seed").encode(vector, frame), UsageError) << count;
  }
}

// If the indices were changed but not the draw, a reader refuses the frame; it never decodes another vector.
TEST(DrawnIndices, ThatWereChangedAreRefused) {
  for (const char* codec : {"auto", "seed"}) {
    SCOPED_TRACE(codec);
    for (const int change : {0, 1, 2, 3}) {
      SCOPED_TRACE(change);
      SparseVector vector = drawn_vector({{5000, 40}, {5000, 60}}, 1);
      if (change == 0) vector.indices.back() = vector.indices.back() == 9999 ? 9998 : 9999;
      if (change == 1) ++vector.draw.seed;
      if (change == 2) ++vector.draw.step;
      if (change == 3) vector.draw.rank ^= 1U;
      ASSERT_TRUE(vector.is_valid());
      SparseVector decoded;
      const DecodeStatus status = decode(encoded(codec, vector), decoded);
      if (codec == std::string_view("seed")) {
        EXPECT_EQ(status, DecodeStatus::bad_indices);
      }
      if (status == DecodeStatus::ok) {
        EXPECT_TRUE(same_bits(vector, decoded));
      } else {
        EXPECT_EQ(decoded.size(), 0U);
      }
    }
  }
}

TEST(DrawnIndices, AreDrawnAsTheReferenceDrawsThem) {
  for (const char* spec : {"randomk:ratio=0.05", "randomk:ratio=0.6"}) {
    const SparseVector sent =
        sent_by(spec, {.layout = layout_of({300, 5000, 7}), .scope = Scope::layer, .rank = 2, .ranks = 3, .seed = 123});
    Indices expected;
    std::uint32_t begin = 0;
    for (std::size_t u = 0; u < sent.draw.units.size(); ++u) {
      const Draw::Unit& unit = sent.draw.units[u];
      for (const std::uint32_t i : reference::draw_positions(sent.draw, u, unit.k, unit.size)) {
        expected.push_back(begin + i);
      }
      begin += unit.size;
    }
    EXPECT_EQ(sent.indices, expected);
  }
}

}  // namespace
}  // namespace sparsewire::drawn_indices_test
