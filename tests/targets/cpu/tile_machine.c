/* The tile instructions of Intel's AMX (palette 1, bf16 and bytes), for CPUs that lack them: see tile_machine.py.
 *
 * `tile_machine_step` decodes and executes one instruction on the tiles of the calling thread. A handler of SIGILL
 * calls it where a process meets such an instruction, and so does what emulates a whole CPU. Semantics and faults are
 * those of Intel's manual, volume 2, exception classes AMX-E1 to AMX-E6.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, CONFIG_BYTES = 64, RANKS = 16 };
enum { PALETTE = 0, START_ROW = 1, COLUMN_BYTES = 16, ROW_COUNTS = 48 }; /* offsets in a configuration */
enum { ANOTHER = 0, INVALID_OPCODE = -6, PROTECTION = -13, PAGE = -14 }; /* instead of a length: the exception */

/* ---- encodings: VEX.128, map 0F38, W0 ---- */

enum prefix { NONE, P66, PF3, PF2 };
enum form { CONFIG, BARE, ONE_TILE, ROWS_OF_MEMORY, PRODUCT };
enum operation {
    LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED,
    TDPBF16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD, OPERATIONS
};

static const struct encoding {
    const char *name;
    uint8_t opcode, prefix, form;
} encodings[OPERATIONS] = {
    [LDTILECFG] = {"ldtilecfg", 0x49, NONE, CONFIG},
    [STTILECFG] = {"sttilecfg", 0x49, P66, CONFIG},
    [TILERELEASE] = {"tilerelease", 0x49, NONE, BARE},
    [TILEZERO] = {"tilezero", 0x49, PF2, ONE_TILE},
    [TILELOADD] = {"tileloadd", 0x4B, PF2, ROWS_OF_MEMORY},
    [TILELOADDT1] = {"tileloaddt1", 0x4B, P66, ROWS_OF_MEMORY},
    [TILESTORED] = {"tilestored", 0x4B, PF3, ROWS_OF_MEMORY},
    [TDPBF16PS] = {"tdpbf16ps", 0x5C, PF3, PRODUCT},
    [TDPBSSD] = {"tdpbssd", 0x5E, PF2, PRODUCT},
    [TDPBSUD] = {"tdpbsud", 0x5E, PF3, PRODUCT},
    [TDPBUSD] = {"tdpbusd", 0x5E, P66, PRODUCT},
    [TDPBUUD] = {"tdpbuud", 0x5E, NONE, PRODUCT},
};

/* What was found: `address` and `stride` of the memory operand, or of the first fault of a page. */
struct instruction {
    int operation;
    int length;
    int tile, first, second; /* the result, and the operands of a product */
    uint64_t address, stride;
    int checked; /* memory that is not there is a fault to tell, not one of this process */
    char reason[200];
};

/* The memory operand of `modrm`, which ends where this returns; NULL if the form needs a SIB byte and there is none.
 * `b` and `x` are the bits that VEX adds to base and index. */
static const uint8_t *memory_operand(struct instruction *i, const uint8_t *code, const uint64_t *registers, int b,
                                     int x, int needs_sib) {
    const int mod = code[-1] >> 6, rm = code[-1] & 7;
    int base = rm, has_base = 1;
    i->stride = 0;
    if (rm == 4) {
        const uint8_t sib = *code++;
        const int index = (sib >> 3 & 7) | x << 3;
        base = sib & 7;
        if (index != 4) i->stride = registers[index] << (sib >> 6);
        has_base = mod != 0 || base != 5;
    } else if (needs_sib) {
        return NULL;
    }
    const int relative = rm == 5 && mod == 0;
    int64_t displacement = 0;
    if (mod == 1) {
        displacement = (int8_t)*code++;
    } else if (mod == 2 || relative || !has_base) {
        int32_t wide;
        memcpy(&wide, code, sizeof wide);
        displacement = wide;
        code += sizeof wide;
    }
    /* rip is the address of the next instruction: no operand has an immediate behind it */
    i->address = (uint64_t)displacement + (relative ? (uint64_t)code : has_base ? registers[base | b << 3] : 0);
    if (!needs_sib) { /* an address, and not rows at a distance */
        i->address += i->stride;
        i->stride = 0;
    }
    return code;
}

/* Whether this is a tile instruction in a form that exists. Bytes are read as far as they belong to one. */
static int decode(struct instruction *i, const uint8_t *code, const uint64_t *registers) {
    const uint8_t *const begin = code;
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84) != 0) return 0; /* VEX, 0F38, W and L */
    const int r = !(code[1] & 0x80), x = !(code[1] & 0x40), b = !(code[1] & 0x20);
    const int third = ~code[2] >> 3 & 15, prefix = code[2] & 3, opcode = code[3], modrm = code[4];
    const int is_register = modrm >> 6 == 3, reg = (modrm >> 3 & 7) | r << 3, rm = (modrm & 7) | b << 3;
    code += 5;
    for (i->operation = 0; i->operation < OPERATIONS; i->operation++) {
        const struct encoding *e = &encodings[i->operation];
        if (e->opcode != opcode || e->prefix != prefix) continue;
        if (e->form != PRODUCT && third != 0) continue;
        i->tile = reg, i->first = rm, i->second = third;
        int exists = 0;
        switch (e->form) {
        case CONFIG:
            exists = !is_register && reg == 0;
            if (exists) code = memory_operand(i, code, registers, b, x, 0);
            break;
        case BARE: exists = modrm == 0xC0 && !r && !b; break;
        case ONE_TILE: exists = is_register && rm == 0; break;
        case ROWS_OF_MEMORY:
            exists = !is_register && (code = memory_operand(i, code, registers, b, x, 1)) != NULL;
            break;
        case PRODUCT: exists = is_register; break;
        }
        if (!exists && e->form == ROWS_OF_MEMORY) return 0;
        if (!exists) continue;
        i->length = (int)(code - begin);
        return 1;
    }
    return 0;
}

/* ---- state: a thread's configuration and tiles, from ldtilecfg to tilerelease ---- */

struct tiles {
    uint8_t config[CONFIG_BYTES];
    uint8_t rows[TILES][ROWS][ROW_BYTES];
};

/* One pointer: a handler must find it without the allocation that a larger thread's own variable would take. */
static _Thread_local struct tiles *own __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t executed[OPERATIONS], configured_threads;

static int rows_in(const uint8_t *config, int tile) { return config[ROW_COUNTS + tile]; }
static int bytes_in(const uint8_t *config, int tile) {
    return config[COLUMN_BYTES + 2 * tile] | config[COLUMN_BYTES + 2 * tile + 1] << 8;
}
static int rows_of(int tile) { return rows_in(own->config, tile); }
static int bytes_of(int tile) { return bytes_in(own->config, tile); }

/* Keep why an instruction fails; each # of the text is one of the numbers behind it. */
static int fail(struct instruction *i, int exception, const char *text, ...) {
    char *out = i->reason, *const end = i->reason + sizeof i->reason - 12;
    va_list numbers;
    va_start(numbers, text);
    for (; *text && out < end; text++) {
        if (*text != '#') {
            *out++ = *text;
            continue;
        }
        char digits[12];
        int count = 0;
        for (unsigned rest = va_arg(numbers, unsigned); rest || !count; rest /= 10) digits[count++] = '0' + rest % 10;
        while (count) *out++ = digits[--count];
    }
    va_end(numbers);
    *out = 0;
    return exception;
}

static int copy(struct instruction *i, void *inside, uint64_t outside, size_t bytes, int writes) {
    if (i->checked) {
        const struct iovec here = {inside, bytes}, there = {(void *)outside, bytes};
        const ssize_t done = (writes ? process_vm_writev : process_vm_readv)(getpid(), &here, 1, &there, 1, 0);
        if (done == (ssize_t)bytes) return 0;
        i->address = outside;
        return fail(i, PAGE, writes ? "memory that cannot be written" : "memory that cannot be read");
    }
    if (writes)
        memcpy((void *)outside, inside, bytes);
    else
        memcpy(inside, (const void *)outside, bytes);
    return 0;
}

static void release(void) {
    if (!own) return;
    munmap(own, sizeof *own);
    own = NULL;
    atomic_fetch_sub(&configured_threads, 1);
}

static int configure(struct instruction *i) {
    uint8_t config[CONFIG_BYTES];
    const int fault = copy(i, config, i->address, sizeof config, 0);
    if (fault) return fault;
    if (config[PALETTE] > 1) return fail(i, PROTECTION, "palette #: there are 0 and 1", config[PALETTE]);
    if (config[PALETTE] == 0) {
        release();
        return 0;
    }
    for (int n = 0; n < CONFIG_BYTES; n++) {
        const int reserved = (n > START_ROW && n < COLUMN_BYTES) || (n >= COLUMN_BYTES + 2 * TILES && n < ROW_COUNTS) ||
                             n >= ROW_COUNTS + TILES;
        if (reserved && config[n])
            return fail(i, PROTECTION, "byte # of the configuration is #: it must be 0", n, config[n]);
    }
    for (int n = 0; n < TILES; n++) {
        const int rows = rows_in(config, n), bytes = bytes_in(config, n);
        if (rows > ROWS || bytes > ROW_BYTES || !rows != !bytes)
            return fail(i, PROTECTION, "tile # has # rows of # bytes: at most 16 of 64, and none of none", n, rows,
                        bytes);
    }
    if (!own) {
        struct tiles *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return fail(i, PROTECTION, "no memory for the tiles");
        own = made;
        atomic_fetch_add(&configured_threads, 1);
    }
    memcpy(own->config, config, sizeof config);
    memset(own->rows, 0, sizeof own->rows);
    return 0;
}

/* ---- products ---- */

#define WITH_AVX2 __attribute__((noinline, target("avx2,fma")))

/* Even and odd elements have sums of their own, which are added at the end, then to the result. */
WITH_AVX2 static void bf16_product(float (*c)[ROWS], const uint32_t (*a)[ROWS], const uint32_t (*b)[ROWS], int m,
                                   int k) {
    for (int row = 0; row < m; row++) {
        float even[ROWS] = {0}, odd[ROWS] = {0};
        for (int pair = 0; pair < k; pair++) {
            for (int n = 0; n < ROWS; n++) {
                const union { uint32_t bits; float value; } a0 = {a[row][pair] << 16}, a1 = {a[row][pair] & 0xFFFF0000};
                const union { uint32_t bits; float value; } b0 = {b[pair][n] << 16}, b1 = {b[pair][n] & 0xFFFF0000};
                even[n] = __builtin_fmaf(a0.value, b0.value, even[n]);
                odd[n] = __builtin_fmaf(a1.value, b1.value, odd[n]);
            }
        }
        for (int n = 0; n < ROWS; n++) c[row][n] += even[n] + odd[n];
    }
}

/* Sums of four products of bytes, modulo 2^32. */
WITH_AVX2 static void byte_product(uint32_t (*c)[ROWS], const uint8_t (*a)[ROW_BYTES], const uint8_t (*b)[ROW_BYTES],
                                   int m, int k, int a_signed, int b_signed) {
    const int a_flip = a_signed ? 0x80 : 0, b_flip = b_signed ? 0x80 : 0; /* (x ^ 0x80) - 0x80 extends the sign */
    int32_t wide[ROW_BYTES][ROWS];
    for (int byte = 0; byte < 4 * k; byte++)
        for (int n = 0; n < ROWS; n++) wide[byte][n] = (b[byte / 4][4 * n + byte % 4] ^ b_flip) - b_flip;
    for (int row = 0; row < m; row++)
        for (int byte = 0; byte < 4 * k; byte++) {
            const int left = (a[row][byte] ^ a_flip) - a_flip;
            for (int n = 0; n < ROWS; n++) c[row][n] += (uint32_t)(left * wide[byte][n]);
        }
}

static int multiply(struct instruction *i) {
    const int c = i->tile, a = i->first, b = i->second, m = rows_of(c), k = rows_of(b);
    if (c == a || c == b || a == b) return fail(i, INVALID_OPCODE, "tiles #, # and #: they must differ", c, a, b);
    if (rows_of(a) != m || bytes_of(a) != 4 * k || bytes_of(b) != bytes_of(c))
        return fail(i, INVALID_OPCODE, "tiles of # x #, # x # and # x # bytes: rows of the first two, bytes of the"
                    " first and last, and bytes / 4 and rows of the last two must agree", m, bytes_of(c), rows_of(a),
                    bytes_of(a), k, bytes_of(b));
    /* Whole rows are computed: nothing ever shows what is behind a tile's own bytes, and ldtilecfg clears it. */
    if (i->operation == TDPBF16PS) {
        const unsigned control = _mm_getcsr();
        _mm_setcsr(0x9FC0); /* denormals are zero, results too; to nearest even; no exceptions */
        bf16_product((void *)own->rows[c], (const void *)own->rows[a], (const void *)own->rows[b], m, k);
        _mm_setcsr(control);
    } else {
        const int a_signed = i->operation == TDPBSSD || i->operation == TDPBSUD;
        const int b_signed = i->operation == TDPBSSD || i->operation == TDPBUSD;
        byte_product((void *)own->rows[c], own->rows[a], own->rows[b], m, k, a_signed, b_signed);
    }
    return 0;
}

/* ---- execution ---- */

static int move_rows(struct instruction *i) {
    const int tile = i->tile, rows = rows_of(tile), bytes = bytes_of(tile), writes = i->operation == TILESTORED;
    uint8_t *const start = &own->config[START_ROW];
    if (*start >= rows) return fail(i, INVALID_OPCODE, "start row # of tile #, which has # rows", *start, tile, rows);
    for (; *start < rows; ++*start) { /* from the row on at which a page was missing before */
        const int fault = copy(i, own->rows[tile][*start], i->address + *start * i->stride, bytes, writes);
        if (fault) return fault;
    }
    return 0;
}

static int check_tile(struct instruction *i, int tile, int whole_elements) {
    if (tile >= TILES) return fail(i, INVALID_OPCODE, "tile #: there are 8", tile);
    if (!own) return fail(i, INVALID_OPCODE, "tile # before ldtilecfg, or behind tilerelease", tile);
    if (!rows_of(tile)) return fail(i, INVALID_OPCODE, "tile # is not configured", tile);
    if (whole_elements && bytes_of(tile) % 4)
        return fail(i, INVALID_OPCODE, "tile # has rows of # bytes, no multiple of 4", tile, bytes_of(tile));
    return 0;
}

static int execute(struct instruction *i) {
    static const uint8_t unconfigured[CONFIG_BYTES];
    const int form = encodings[i->operation].form;
    int fault = form < ONE_TILE ? 0 : check_tile(i, i->tile, form != ONE_TILE);
    if (!fault && form == PRODUCT) fault = check_tile(i, i->first, 1);
    if (!fault && form == PRODUCT) fault = check_tile(i, i->second, 1);
    if (fault) return fault;
    switch (i->operation) {
    case LDTILECFG: return configure(i);
    case STTILECFG: return copy(i, own ? own->config : (uint8_t *)unconfigured, i->address, CONFIG_BYTES, 1);
    case TILERELEASE: release(); return 0;
    case TILEZERO: memset(own->rows[i->tile], 0, sizeof own->rows[i->tile]); break;
    case TILELOADD: case TILELOADDT1: case TILESTORED: fault = move_rows(i); break;
    default: fault = multiply(i);
    }
    if (!fault) own->config[START_ROW] = 0;
    return fault;
}

/* Execute the tile instruction at `code` and those that follow it at once, which saves their signals, with these
 * registers in the order of their numbers. Returns the length of all, ANOTHER if the first is no tile instruction, or
 * the first one's exception, whose reason `told` has. */
int tile_machine_step(const uint8_t *code, const uint64_t *registers, int checked, struct instruction *told) {
    told->checked = checked;
    int length = 0;
    while (decode(told, code + length, registers)) {
        const int fault = execute(told);
        if (fault) return length ? length : fault;
        atomic_fetch_add_explicit(&executed[told->operation], 1, memory_order_relaxed);
        length += told->length;
    }
    return length; /* or ANOTHER */
}

/* ---- the handler of SIGILL ---- */

static struct sigaction previous;
static atomic_int active;

static void pass_on(int signal, siginfo_t *info, void *context) {
    const int sent = info->si_code <= 0;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else if (!sent || previous.sa_handler == SIG_DFL) {
        sigaction(signal, &(const struct sigaction){.sa_handler = SIG_DFL}, NULL);
        if (sent) raise(signal); /* what the CPU raised comes again */
    }
}

static void on_invalid_instruction(int signal, siginfo_t *info, void *context) {
    static const int order[RANKS] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    greg_t *const state = ((ucontext_t *)context)->uc_mcontext.gregs;
    const int saved = errno;
    int found = ANOTHER;
    struct instruction told;
    if (atomic_load(&active) && info->si_code > 0) {
        uint64_t registers[RANKS];
        for (int n = 0; n < RANKS; n++) registers[n] = (uint64_t)state[order[n]];
        found = tile_machine_step((const uint8_t *)state[REG_RIP], registers, 0, &told);
    }
    if (found > 0) {
        state[REG_RIP] += found;
    } else if (found < 0) {
        const char *const texts[] = {"tile machine: ", encodings[told.operation].name, ": ", told.reason, "\n"};
        for (unsigned n = 0; n < sizeof texts / sizeof *texts; n++)
            if (write(STDERR_FILENO, texts[n], strlen(texts[n])) < 0) break;
    }
    if (found == PROTECTION) /* the same fault, by an address that no process can have */
        __asm__ volatile("movb (%0), %%al" : : "r"(UINT64_C(1) << 63) : "al", "memory");
    if (found == ANOTHER || found == INVALID_OPCODE) pass_on(signal, info, context);
    errno = saved;
}

static void in_child(void) {
    release();
    atomic_store(&configured_threads, 0); /* the other threads are gone */
}

/* Execute tile instructions of all threads from now on. */
int tile_machine_install(void) {
    static int prepared;
    if (!prepared && pthread_atfork(NULL, NULL, in_child)) return -1;
    prepared = 1;
    struct sigaction ours = {.sa_sigaction = on_invalid_instruction, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGILL, NULL, &previous)) return -1; /* before ours can be called */
    atomic_store(&active, 1);
    return sigaction(SIGILL, &ours, NULL);
}

/* Put back the handler that was there; -1 if there is another now, which may call ours: it passes all on. */
int tile_machine_remove(void) {
    struct sigaction now;
    atomic_store(&active, 0);
    if (sigaction(SIGILL, NULL, &now) || now.sa_sigaction != on_invalid_instruction) return -1;
    return sigaction(SIGILL, &previous, NULL);
}

int tile_machine_operations(void) { return OPERATIONS; }
const char *tile_machine_name(int operation) { return encodings[operation].name; }
uint64_t tile_machine_executed(int operation) { return atomic_load(&executed[operation]); }
uint64_t tile_machine_configured_threads(void) { return atomic_load(&configured_threads); }
