// What a Java program does with the statements, through JDBC and the proxy. It prints what it has seen, line by line.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import org.postgresql.util.PSQLException;

public class Quotes {
    /** Prints the state and the position of an error. */
    private static void fail(Statement statement, String text) throws SQLException {
        try {
            statement.execute(text);
        } catch (PSQLException problem) {
            System.out.println(problem.getSQLState() + " at " + problem.getServerErrorMessage().getPosition());
        }
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE EVENT TYPE Quotes AS (symbol text NOT NULL, price integer)");
                try {
                    statement.execute("PUBLISH Quotes('early', 1)");
                } catch (SQLException problem) {
                    System.out.println(problem.getSQLState() + " " + problem.getMessage().split("\n")[0]);
                }
                statement.execute("ADVERTISE Quotes");
                System.out.println(statement.executeUpdate("PUBLISH Quotes('IBM', 120)"));
                fail(statement, "SELECT 1 FROM nowhere");
                fail(statement, "PUBLISH Quotes('IBM', none)");
                fail(statement, "PUBLISH Quotes('IBM' 120)");
            }
            connection.setAutoCommit(false);
            try (PreparedStatement publish = connection.prepareStatement("PUBLISH Quotes(?, ?)")) {
                for (int price = 1; price <= 8; price++) { // the driver prepares it in the server after some
                    publish.setString(1, "HP");
                    publish.setInt(2, price);
                    publish.execute();
                }
                connection.commit();
                publish.setString(1, "lost");
                publish.setInt(2, 0);
                publish.execute();
                connection.rollback();
                for (int price = 9; price <= 11; price++) {
                    publish.setString(1, "SUN");
                    publish.setInt(2, price);
                    publish.addBatch();
                }
                System.out.println(publish.executeBatch().length);
                connection.commit();
                try {
                    publish.setString(1, null);
                    publish.setInt(2, 0);
                    publish.execute();
                } catch (SQLException problem) {
                    System.out.println(problem.getSQLState());
                }
                connection.rollback();
                Savepoint before = connection.setSavepoint();
                publish.setString(1, "undone");
                publish.setInt(2, 0);
                publish.execute();
                connection.rollback(before);
                connection.commit();
            }
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery(
                            "SELECT symbol, count(*), sum(price) FROM smile.quotes_in GROUP BY symbol ORDER BY symbol")) {
                while (rows.next()) {
                    System.out.println(rows.getString(1) + " " + rows.getInt(2) + " " + rows.getInt(3));
                }
            }
        }
    }
}
