// Runs the contract of every RLock on one server over TLS.

package lockwheel.clients.redisson;

import java.io.IOException;
import java.nio.file.Files;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.TrustManagerFactory;
import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;

@Setting("TLS")
class TlsTest implements LockContract {
    private static final Clients CLIENTS =
            new Clients(Servers::main, "CHANNELS", config -> config
                    .setSslTrustManagerFactory(trust())
                    .useSingleServer()
                    .setAddress(Servers.tls().toString()));

    @Override
    public Clients clients() {
        return CLIENTS;
    }

    /** Trusts the authority of the server. */
    private static TrustManagerFactory trust() {
        try (var file = Files.newInputStream(Servers.tlsAuthority())) {
            var authorities = KeyStore.getInstance(KeyStore.getDefaultType());
            authorities.load(null, null);
            var authority = CertificateFactory.getInstance("X.509").generateCertificate(file);
            authorities.setCertificateEntry("authority", authority);
            var algorithm = TrustManagerFactory.getDefaultAlgorithm();
            var trust = TrustManagerFactory.getInstance(algorithm);
            trust.init(authorities);
            return trust;
        } catch (IOException | GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }
}
